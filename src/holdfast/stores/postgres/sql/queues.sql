-- name: queues
SELECT
    coalesce(live.queue, known.name) AS name, coalesce(ready, 0) AS ready,
    coalesce(scheduled, 0) AS scheduled, coalesce(parked, 0) AS parked,
    coalesce(running, 0) AS running, oldest_ready_seconds, paused_at, paused_by, paused_because,
    running_max
FROM (
    SELECT
        queue,
        count(*) FILTER (WHERE state = 'queued' AND run_at <= now()) AS ready,
        count(*) FILTER (
            WHERE state = 'queued' AND run_at > now() AND run_at < 'infinity'
        ) AS scheduled,
        count(*) FILTER (WHERE state = 'queued' AND run_at = 'infinity') AS parked,
        count(*) FILTER (WHERE state = 'running') AS running,
        extract(
            epoch FROM now() - min(greatest(run_at, 'epoch')) FILTER (
                WHERE state = 'queued' AND run_at <= now()
            )
        )::float8 AS oldest_ready_seconds
    FROM holdfast.jobs WHERE finished_at IS NULL
    GROUP BY queue
) AS live
FULL JOIN (
    SELECT * FROM holdfast.queues WHERE paused_at IS NOT NULL OR running_max IS NOT NULL
) AS known ON known.name = live.queue
ORDER BY 1

-- name: queue
SELECT
    name, paused_at, paused_by, paused_because, running_max,
    (SELECT count(*) FROM holdfast.jobs WHERE state = 'running' AND queue = known.name) AS running
FROM holdfast.queues AS known
WHERE name = :queue AND (paused_at IS NOT NULL OR running_max IS NOT NULL)

-- name: pause
INSERT INTO holdfast.queues AS known (name, paused_at, paused_by, paused_because)
VALUES (:queue, now(), :by, :because)
ON CONFLICT (name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    paused_because = excluded.paused_because
WHERE known.paused_at IS NULL
RETURNING name

-- name: is_paused
SELECT 1 FROM holdfast.queues WHERE name = :queue AND paused_at IS NOT NULL

-- name: resume
WITH resumed AS (
    UPDATE holdfast.queues SET paused_at = NULL, paused_by = NULL, paused_because = NULL
    WHERE name = :queue AND paused_at IS NOT NULL
    RETURNING name
)
SELECT pg_notify('holdfast', 'q:' || name) FROM resumed

-- name: cap
WITH capped AS (
    INSERT INTO holdfast.queues (name, running_max)
    VALUES (:queue, :running_max)
    ON CONFLICT (name) DO UPDATE SET running_max = excluded.running_max
    RETURNING name
)
SELECT pg_notify('holdfast', 'q:' || name) FROM capped

-- name: caps
SELECT name, running_max IS NOT NULL AS is_capped FROM holdfast.queues
WHERE paused_at IS NOT NULL OR running_max IS NOT NULL

-- name: first_lease
SELECT first_lease, looked_at
FROM holdfast.look_for_first_lease(
    :first_lease::timestamptz, :looked_at::timestamptz, :looked_seconds_before::float8,
    :near_entries::bigint
)
