-- Finds, without locks, the job for each breaker: of those that started least often, one drawn by
-- lot or, every other time, the newest. If none of the first `look_max` is for this worker, the
-- search continues after the job that `pass_over` noted. Then it locks the breakers and checks them
-- again, so that only one of two concurrent claims gets the job.
found AS MATERIALIZED (
    SELECT
        due.key, coalesce(newest.id, drawn.id) AS id, coalesce(newest.queue, drawn.queue) AS queue
    FROM (
        SELECT known.key, known.probes, passed.id AS passed_id, passed.fence AS passed_fence
        FROM holdfast.breakers AS known
        LEFT JOIN holdfast.jobs AS passed ON passed.id = known.probed_id
        WHERE known.opened_at IS NOT NULL AND known.next_probe_at <= now()
        ORDER BY known.next_probe_at, known.key
    ) AS due
    CROSS JOIN LATERAL (
        SELECT id, queue, fence
        FROM (
            (
                SELECT id, queue, name, tenant, fence, held_run_at FROM holdfast.jobs
                WHERE state = 'queued' AND breaker = due.key AND run_at = 'infinity'
                ORDER BY fence, holdfast.lot(id), id LIMIT :look_max
            )
            UNION ALL
            (
                SELECT id, queue, name, tenant, fence, held_run_at FROM holdfast.jobs
                WHERE state = 'queued' AND breaker = due.key AND run_at = 'infinity'
                    AND (fence, holdfast.lot(id), id)
                    > (due.passed_fence, holdfast.lot(due.passed_id), due.passed_id)
                ORDER BY fence, holdfast.lot(id), id LIMIT :look_max
            )
        ) AS parked
        WHERE {sendable}
        LIMIT 1
    ) AS drawn
    LEFT JOIN LATERAL (
        SELECT id, queue
        FROM (
            SELECT id, queue, name, tenant, fence, held_run_at FROM holdfast.jobs
            -- Not `=`: the planner would use the primary key for the order, and read all jobs.
            WHERE state = 'queued' AND breaker = due.key AND run_at >= 'infinity'
            ORDER BY run_at DESC, id DESC LIMIT :look_max
        ) AS parked
        WHERE fence = drawn.fence AND {sendable}
        LIMIT 1
    ) AS newest ON due.probes % 2 = 0
    LIMIT :limit
),
chosen AS MATERIALIZED (
    SELECT key, id
    FROM (
        SELECT
            key, id, (SELECT spare[array_position(queues, queue)] FROM caps) AS spare,
            row_number() OVER (PARTITION BY queue ORDER BY key) AS place
        FROM found
    ) AS placed
    WHERE spare IS NULL OR place <= spare
),
turned AS (
    UPDATE holdfast.breakers
    SET next_probe_at = now() + make_interval(secs => probe_seconds), probes = probes + 1
    WHERE key = ANY (ARRAY(
        SELECT key FROM holdfast.breakers
        WHERE key = ANY (ARRAY(SELECT key FROM chosen)) AND opened_at IS NOT NULL
            AND next_probe_at <= now()
        ORDER BY key
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING key
)
{lease}, run_at = held_run_at, held_run_at = NULL, probes = probes + 1
WHERE id = ANY (ARRAY(
    SELECT id FROM holdfast.jobs
    WHERE id = ANY (ARRAY(SELECT chosen.id FROM chosen JOIN turned USING (key)))
        AND lease_owner IS NULL AND finished_at IS NULL AND run_at = 'infinity'
    FOR UPDATE SKIP LOCKED
))
{claimed},
    probes
