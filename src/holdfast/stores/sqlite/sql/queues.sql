-- name: queues
SELECT
    name, sum(ready) AS ready, sum(scheduled) AS scheduled, sum(parked) AS parked,
    sum(running) AS running, (:now - max(min(oldest), 0)) / 1e6 AS oldest_ready_seconds,
    max(paused_at) AS paused_at, max(paused_by) AS paused_by, max(paused_because) AS paused_because,
    max(running_max) AS running_max
FROM (
    SELECT
        queue AS name, count(*) FILTER (WHERE run_at <= :now) AS ready,
        count(*) FILTER (WHERE run_at > :now AND run_at < 9223372036854775807) AS scheduled,
        count(*) FILTER (WHERE run_at = 9223372036854775807) AS parked, 0 AS running,
        min(run_at) FILTER (WHERE run_at <= :now) AS oldest, NULL AS paused_at, NULL AS paused_by,
        NULL AS paused_because, NULL AS running_max
    FROM jobs INDEXED BY jobs_due WHERE state = 'queued'
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, count(*), NULL, NULL, NULL, NULL, NULL
    FROM jobs INDEXED BY jobs_leased WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT name, 0, 0, 0, 0, NULL, paused_at, paused_by, paused_because, running_max FROM queues
)
GROUP BY name
ORDER BY name

-- name: queue
SELECT
    name, paused_at, paused_by, paused_because, running_max,
    (
        SELECT count(*) FROM jobs INDEXED BY jobs_leased
        WHERE state = 'running' AND queue = queues.name
    ) AS running
FROM queues WHERE name = :queue

-- name: pause
INSERT INTO queues (name, paused_at, paused_by, paused_because)
VALUES (:queue, :now, :by, :because)
ON CONFLICT (name) DO UPDATE SET
    paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    paused_because = excluded.paused_because
WHERE paused_at IS NULL

-- name: is_paused
SELECT 1 FROM queues WHERE name = :queue AND paused_at IS NOT NULL

-- name: resume
UPDATE queues SET paused_at = NULL, paused_by = NULL, paused_because = NULL
WHERE name = :queue AND paused_at IS NOT NULL

-- name: cap
INSERT INTO queues (name, running_max) VALUES (:queue, :running_max)
ON CONFLICT (name) DO UPDATE SET running_max = excluded.running_max

-- name: forget_queue
DELETE FROM queues WHERE name = :queue AND paused_at IS NULL AND running_max IS NULL

-- name: caps
SELECT name, paused_at IS NOT NULL, running_max FROM queues

-- name: running
SELECT queue, count(*) FROM jobs INDEXED BY jobs_leased WHERE state = 'running' GROUP BY queue
