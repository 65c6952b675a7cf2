-- name: ended_counts
SELECT queue, state, sum(jobs) FROM history_counts GROUP BY queue, state HAVING sum(jobs) > 0

-- name: newest_ended
-- Ids follow the time: the newest of those that have ended did so lately, or were urgent.
SELECT queue, (started_at - run_at) / 1e6, (finished_at - started_at) / 1e6
FROM (SELECT queue, state, run_at, started_at, finished_at FROM history ORDER BY id DESC LIMIT :limit)
WHERE started_at IS NOT NULL AND state <> 'canceled'
