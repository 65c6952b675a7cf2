-- name: ended_counts
SELECT queue, state, sum(jobs)::bigint AS jobs
FROM holdfast.history_counts
GROUP BY queue, state
HAVING sum(jobs) > 0

-- name: newest_ended
-- What another program may have written, infinity for example, can't be subtracted.
-- Ids follow the time: the newest of those that have ended did so lately, or were urgent.
SELECT
    queue,
    extract(
        epoch FROM greatest(least(started_at, now()), 'epoch')
        - greatest(least(run_at, now()), 'epoch')
    )::float8 AS waited_seconds,
    extract(
        epoch FROM greatest(least(finished_at, now()), 'epoch')
        - greatest(least(started_at, now()), 'epoch')
    )::float8 AS ran_seconds
FROM (
    SELECT queue, state, run_at, started_at, finished_at
    FROM holdfast.history
    ORDER BY id DESC
    LIMIT :limit
) AS newest
WHERE started_at IS NOT NULL AND state <> 'canceled'

-- name: now
SELECT now() AS now
