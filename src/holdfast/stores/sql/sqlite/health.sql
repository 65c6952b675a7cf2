-- name: due_lanes
SELECT queue, priority FROM lanes WHERE run_at <= :now ORDER BY run_at LIMIT :limit

-- name: due_of_lane
SELECT name, count(*), min(run_at) FROM (
    SELECT name, run_at FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' AND queue = :queue AND priority = :priority AND run_at <= :now
    ORDER BY run_at, id LIMIT :limit
)
GROUP BY name

-- name: stuck
SELECT lease_owner, lease_expires_at FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND lease_expires_at < :until ORDER BY lease_expires_at LIMIT :limit

-- name: paused
SELECT name, paused_at, paused_by, paused_because FROM queues
WHERE paused_at IS NOT NULL ORDER BY paused_at, name LIMIT 100

-- name: leftovers
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_leftovers WHERE finished_at IS NOT NULL LIMIT :limit
)

-- name: outlived
SELECT count(*) FROM (
    SELECT 1 FROM history INDEXED BY history_kept_until WHERE kept_until < :until LIMIT :limit
)

-- name: indexes
SELECT name FROM sqlite_schema WHERE type = 'index'
