-- Claims a job that has to run alone. Included by claim.sql.
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now(),
    alone = true
WHERE id = ANY (ARRAY(
    SELECT id
    FROM holdfast.jobs
    WHERE suspect AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND (:queues::text[] IS NULL OR queue = ANY (:queues))
        AND queue <> ALL (:except_queues::text[]) AND queue <> ALL ({paused_or_full})
    ORDER BY priority, run_at, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
))
{claimed}
