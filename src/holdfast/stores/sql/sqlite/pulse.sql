-- name: ended_counts
SELECT queue, state, sum(jobs) FROM history_counts GROUP BY queue, state HAVING sum(jobs) > 0

-- name: newest_ended
-- Ids follow the time: the newest of those that have ended did so lately, or were urgent.
SELECT queue, (started_at - run_at) / 1e6, (finished_at - started_at) / 1e6
FROM (
    SELECT
        queue, state, max(min(run_at, :now), 0) AS run_at,
        max(min(started_at, :now), 0) AS started_at, max(min(finished_at, :now), 0) AS finished_at
    FROM history ORDER BY id DESC LIMIT :limit
)
WHERE started_at IS NOT NULL AND state <> 'canceled'
