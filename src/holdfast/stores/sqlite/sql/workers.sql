-- name: register
INSERT INTO workers (
    id, host, pid, version, app_version, queues, names, concurrency, suspects_only, lease_seconds,
    started_at, seen_at, running, full_queues, messengers
) VALUES (
    :worker, :host, :pid, :version, :app_version, :queues, :names, :concurrency, :suspects_only,
    :lease_seconds, :started_at, :now, :running, :full_queues, :messengers
)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at, running = excluded.running, full_queues = excluded.full_queues,
    messengers = excluded.messengers

-- name: heartbeat
UPDATE workers
SET seen_at = :now, running = :running, full_queues = :full_queues, messengers = :messengers
WHERE id = :worker

-- name: deregister
DELETE FROM workers WHERE id = :worker

-- name: workers
SELECT
    id, host, pid, version, app_version, queues, names, concurrency, running, full_queues,
    messengers, suspects_only, lease_seconds, started_at, seen_at
FROM workers ORDER BY seen_at DESC, id LIMIT :limit
