-- name: surroundings
SELECT suspect, state = 'queued' AND run_at = 9223372036854775807, probes
FROM jobs WHERE id = :id

-- name: ahead
-- The plus keeps SQLite from applying a condition on lanes to jobs: it would walk the better lanes
-- to the end, past all the jobs in them that are not due.
SELECT count(*) FROM (
    SELECT 1
    FROM jobs AS mine CROSS JOIN lanes CROSS JOIN jobs AS first INDEXED BY jobs_due
        ON first.state = 'queued' AND first.queue = lanes.queue
            AND first.priority = lanes.priority AND first.run_at <= :now
    WHERE mine.id = :id AND mine.state = 'queued' AND +lanes.queue = mine.queue
        AND +lanes.priority <= mine.priority AND lanes.run_at <= :now AND first.suspect = 0
        AND (
            first.breaker IS NULL
            OR (SELECT opened_at FROM breakers WHERE key = first.breaker) IS NULL
        )
        AND (
            +lanes.priority < mine.priority OR first.run_at < mine.run_at
            OR (first.run_at = mine.run_at AND first.id < mine.id)
        )
    LIMIT :limit
)

-- name: vital_lanes
SELECT queue, priority FROM lanes WHERE run_at <= :now ORDER BY run_at LIMIT :limit

-- name: vital_due
SELECT name, count(*), min(run_at) FROM (
    SELECT name, run_at FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' AND queue = :queue AND priority = :priority AND run_at <= :now
    ORDER BY run_at, id LIMIT :limit
)
GROUP BY name

-- name: vital_handed_back
SELECT name, releases, substr(error_text, 1, 2000) AS error_text FROM (
    SELECT name, releases, error_code, error_text FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' AND queue = :queue AND priority = :priority
        AND run_at > :since AND run_at <= :until
    ORDER BY run_at, id LIMIT :limit
)
WHERE error_code = 'HANDED_BACK'

-- name: vital_stuck
SELECT lease_owner, lease_expires_at FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND lease_expires_at < :until ORDER BY lease_expires_at LIMIT :limit

-- name: vital_paused
SELECT name AS queue, paused_at AS since, paused_by AS by, paused_because AS because FROM queues
WHERE paused_at IS NOT NULL ORDER BY paused_at, name LIMIT 100

-- name: vital_capped
SELECT name AS queue, running_max, (
    SELECT count(*) FROM jobs INDEXED BY jobs_leased
    WHERE jobs.state = 'running' AND jobs.queue = queues.name
) AS running
FROM queues WHERE running_max IS NOT NULL ORDER BY running_max, name LIMIT 100

-- name: vital_ends
-- Ids follow the time, so the newest ended jobs ended recently, or were urgent.
SELECT queue, state, finished_at >= :since AS lately, count(*) AS jobs
FROM (SELECT queue, state, finished_at FROM history ORDER BY id DESC LIMIT :limit)
GROUP BY queue, state, lately

-- name: vital_failures
SELECT queue, name, error_code, substr(error_text, 1, 2000) AS error_text
FROM (
    SELECT queue, name, state, finished_at, error_code, error_text
    FROM history INDEXED BY history_unsuccessful
    WHERE state <> 'succeeded' ORDER BY id DESC LIMIT :limit
)
WHERE state IN ('failed', 'dead') AND finished_at >= :since

-- name: vital_leftovers
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_leftovers WHERE finished_at IS NOT NULL LIMIT :limit
)

-- name: vital_outlived
SELECT count(*) FROM (
    SELECT 1 FROM history INDEXED BY history_kept_until WHERE kept_until < :until LIMIT :limit
)

-- name: vital_indexes
SELECT name FROM sqlite_schema WHERE type = 'index'
