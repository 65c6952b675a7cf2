-- name: queues
SELECT
    name, sum(ready), sum(scheduled), sum(held), sum(running), (:now - min(oldest)) / 1e6,
    max(paused_at), max(paused_by), max(paused_because), max(running_max)
FROM (
    SELECT
        queue AS name, count(*) FILTER (WHERE run_at <= :now) AS ready,
        count(*) FILTER (WHERE run_at > :now AND run_at < 9223372036854775807) AS scheduled,
        count(*) FILTER (WHERE run_at = 9223372036854775807) AS held, 0 AS running,
        min(run_at) FILTER (WHERE run_at <= :now) AS oldest, NULL AS paused_at, NULL AS paused_by,
        NULL AS paused_because, NULL AS running_max
    FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued'
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, count(*), NULL, NULL, NULL, NULL, NULL
    FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT name, 0, 0, 0, 0, NULL, paused_at, paused_by, paused_because, running_max FROM queues
)
GROUP BY name
ORDER BY name

-- name: breakers
SELECT
    key,
    (
        SELECT count(*)
        FROM json_each(failures)
        WHERE value > :now - CAST(window_seconds * 1e6 AS INTEGER)
    ),
    opened_at, opened_by, opened_because, next_probe_at, letting_go, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM jobs INDEXED BY jobs_breaker
            WHERE breaker = known.key AND run_at = 9223372036854775807
            LIMIT :held_max
        )
    )
FROM breakers AS known
ORDER BY opened_at IS NULL, key
LIMIT :limit
