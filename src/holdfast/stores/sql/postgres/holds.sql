-- name: queues
SELECT
    coalesce(live.queue, said.name) AS name, coalesce(ready, 0) AS ready,
    coalesce(scheduled, 0) AS scheduled, coalesce(held, 0) AS held,
    coalesce(running, 0) AS running, oldest_ready_seconds, paused_at, paused_by, paused_because,
    running_max
FROM (
    SELECT
        queue,
        count(*) FILTER (WHERE state = 'queued' AND run_at <= now()) AS ready,
        count(*) FILTER (
            WHERE state = 'queued' AND run_at > now() AND run_at < 'infinity'
        ) AS scheduled,
        count(*) FILTER (WHERE state = 'queued' AND run_at = 'infinity') AS held,
        count(*) FILTER (WHERE state = 'running') AS running,
        extract(
            epoch FROM now() - min(run_at) FILTER (WHERE state = 'queued' AND run_at <= now())
        )::float8 AS oldest_ready_seconds
    FROM holdfast.jobs
    WHERE finished_at IS NULL
    GROUP BY queue
) AS live
FULL JOIN holdfast.queues AS said ON said.name = live.queue
ORDER BY 1

-- name: breakers
SELECT
    key,
    (
        SELECT count(*)
        FROM unnest(failures) AS failed_at
        WHERE failed_at > now() - make_interval(secs => window_seconds)
    ) AS failures,
    opened_at, opened_by, opened_because, next_probe_at, letting_go, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM holdfast.jobs
            WHERE breaker = known.key AND state = 'queued' AND run_at = 'infinity'
            LIMIT :held_max
        ) AS counted
    ) AS held
FROM holdfast.breakers AS known
ORDER BY opened_at IS NULL, key
LIMIT :limit
