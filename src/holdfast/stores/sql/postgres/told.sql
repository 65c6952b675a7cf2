-- Claims the job that a wake-up named. Included by jobs.sql.
{take}
WHERE id = ANY (ARRAY(
    SELECT id
    FROM holdfast.jobs
    WHERE id = :job_id AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND NOT suspect AND {unheld} AND queue <> ALL ({shut})
    FOR UPDATE SKIP LOCKED
))
{claimed}
