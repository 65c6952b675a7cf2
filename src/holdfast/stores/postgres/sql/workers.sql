-- name: register
INSERT INTO holdfast.workers (
    id, host, pid, version, app_version, queues, names, concurrency, suspects_only, lease_seconds,
    started_at, seen_at, running, full_queues, messengers
) VALUES (
    :worker, :host, :pid, :version, :app_version, :queues::json, :names::text[], :concurrency,
    :suspects_only, :lease_seconds, now() - make_interval(secs => :up_seconds),
    now(), :running, :full_queues::text[], :messengers::json
)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at, running = excluded.running, full_queues = excluded.full_queues,
    messengers = excluded.messengers

-- name: heartbeat
UPDATE holdfast.workers
SET
    seen_at = now(), running = :running, full_queues = :full_queues::text[],
    messengers = :messengers::json
WHERE id = :worker
RETURNING id

-- name: deregister
SELECT holdfast.deregister(:worker::text)

-- name: workers
SELECT
    id, host, pid, version, app_version, queues, names, concurrency, running, full_queues,
    messengers, suspects_only, lease_seconds, started_at, seen_at,
    extract(epoch FROM now() - greatest(least(seen_at, now()), 'epoch'))::float8 AS unseen_seconds
FROM holdfast.workers ORDER BY seen_at DESC, id LIMIT :limit
