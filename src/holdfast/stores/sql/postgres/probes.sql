-- A look without locks finds for each breaker the job whose turn it is; then the breakers are
-- locked and asked again, so that of two who found one only one has it.
-- Included by holds.sql.
found AS MATERIALIZED (
    SELECT due.key, job.id, job.queue
    FROM (
        SELECT key, probed_id
        FROM holdfast.breakers
        WHERE opened_at IS NOT NULL AND next_probe_at <= now()
        ORDER BY next_probe_at, key
    ) AS due
    CROSS JOIN LATERAL (
        SELECT id, queue
        FROM (
            (
                SELECT id, queue, name, held_run_at
                FROM holdfast.jobs
                WHERE state = 'queued' AND breaker = due.key AND run_at = 'infinity'
                    AND id > due.probed_id
                ORDER BY run_at, id
                LIMIT :look_max
            )
            UNION ALL
            (
                SELECT id, queue, name, held_run_at
                FROM holdfast.jobs
                WHERE state = 'queued' AND breaker = due.key AND run_at = 'infinity'
                ORDER BY run_at, id
                LIMIT :look_max
            )
        ) AS held
        WHERE held_run_at <= now() AND name = ANY (:names::text[])
            AND (:queues::text[] IS NULL OR queue = ANY (:queues))
            AND queue <> ALL (:except_queues::text[]) AND queue <> ALL ({shut})
        LIMIT 1
    ) AS job
    LIMIT :limit
),
chosen AS MATERIALIZED (
    SELECT key, id
    FROM (
        SELECT
            key, id, (SELECT spare[array_position(queues, queue)] FROM room) AS room,
            row_number() OVER (PARTITION BY queue ORDER BY key) AS place
        FROM found
    ) AS placed
    WHERE room IS NULL OR place <= room
),
turned AS (
    UPDATE holdfast.breakers
    SET next_probe_at = now() + make_interval(secs => probe_seconds),
        probed_id = (SELECT id FROM chosen WHERE chosen.key = breakers.key)
    WHERE key = ANY (ARRAY(
        SELECT key
        FROM holdfast.breakers
        WHERE key = ANY (ARRAY(SELECT key FROM chosen)) AND opened_at IS NOT NULL
            AND next_probe_at <= now()
        ORDER BY key
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING probed_id
)
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now(),
    alone = :alone, run_at = held_run_at, held_run_at = NULL
WHERE id = ANY (ARRAY(
    SELECT id
    FROM holdfast.jobs
    WHERE id = ANY (ARRAY(SELECT probed_id FROM turned)) AND lease_owner IS NULL
        AND finished_at IS NULL AND run_at = 'infinity'
    FOR UPDATE SKIP LOCKED
))
{claimed}
