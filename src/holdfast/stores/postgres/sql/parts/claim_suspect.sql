-- Claims a suspect.
{lease}
WHERE id = ANY (ARRAY(
    SELECT id FROM holdfast.jobs
    WHERE suspect AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND {of_tenant} AND (:queues::text[] IS NULL OR queue = ANY (:queues))
        AND queue <> ALL (:except_queues::text[]) AND queue <> ALL ({paused_or_full})
    ORDER BY priority, run_at, id LIMIT 1
    FOR UPDATE SKIP LOCKED
))
{claimed}
