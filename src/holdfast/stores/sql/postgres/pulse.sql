-- name: ended_counts
SELECT queue, state, sum(jobs)::bigint AS jobs
FROM holdfast.history_counts
GROUP BY queue, state
HAVING sum(jobs) > 0

-- name: newest_ended
-- Ids follow the time: the newest of those that have ended did so lately, or were urgent.
SELECT
    queue, extract(epoch FROM started_at - run_at)::float8 AS waited_seconds,
    extract(epoch FROM finished_at - started_at)::float8 AS ran_seconds
FROM (
    SELECT queue, state, run_at, started_at, finished_at
    FROM holdfast.history
    ORDER BY id DESC
    LIMIT :limit
) AS newest
WHERE started_at IS NOT NULL AND state <> 'canceled'

-- name: now
SELECT now() AS now
