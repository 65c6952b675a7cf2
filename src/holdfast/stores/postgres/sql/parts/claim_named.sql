-- Claims the job that a wake-up named.
{lease}
WHERE id = ANY (ARRAY(
    SELECT id FROM holdfast.jobs
    WHERE id = :job_id AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND NOT suspect AND {of_tenant} AND {breaker_closed}
        AND queue <> ALL ({paused_or_full})
    FOR UPDATE SKIP LOCKED
))
{claimed}
