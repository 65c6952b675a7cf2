-- name: greet
INSERT INTO workers (
    id, host, pid, version, queues, names, concurrency, suspects_only, lease_seconds, started_at,
    seen_at, running, full_queues
) VALUES (
    :worker, :host, :pid, :version, :queues, :names, :concurrency, :suspects_only, :lease_seconds,
    :started_at, :now, :running, :full_queues
)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at, running = excluded.running, full_queues = excluded.full_queues

-- name: see
UPDATE workers SET seen_at = :now, running = :running, full_queues = :full_queues
WHERE id = :worker

-- name: leave
DELETE FROM workers WHERE id = :worker

-- name: workers
SELECT
    id, host, pid, version, queues, names, concurrency, running, full_queues, suspects_only,
    lease_seconds, started_at, seen_at
FROM workers ORDER BY seen_at DESC, id LIMIT :limit

-- name: suspect
SELECT suspect, state = 'queued' AND run_at = 9223372036854775807 FROM jobs WHERE id = :id

-- name: ahead
-- With a plus, so that SQLite takes nothing from a condition on lanes for one on jobs: it would
-- walk the better lanes whole, with all that is not due in them.
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
