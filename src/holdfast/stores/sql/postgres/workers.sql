-- name: greet
INSERT INTO holdfast.workers (
    id, host, pid, version, queues, names, concurrency, suspects_only, lease_seconds, started_at,
    seen_at, running, full_queues
) VALUES (
    :worker, :host, :pid, :version, :queues::json, :names::text[], :concurrency, :suspects_only,
    :lease_seconds, now() - make_interval(secs => :up_seconds), now(), :running,
    :full_queues::text[]
)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at, running = excluded.running, full_queues = excluded.full_queues

-- name: see
UPDATE holdfast.workers
SET seen_at = now(), running = :running, full_queues = :full_queues::text[]
WHERE id = :worker
RETURNING id

-- name: leave
DELETE FROM holdfast.workers WHERE id = :worker

-- name: workers
SELECT
    id, host, pid, version, queues, names, concurrency, running, full_queues, suspects_only,
    lease_seconds, started_at, seen_at,
    extract(epoch FROM now() - greatest(least(seen_at, now()), 'epoch'))::float8 AS unseen_seconds
FROM holdfast.workers
ORDER BY seen_at DESC, id
LIMIT :limit

-- name: surroundings
-- Of the better lanes of the queue and of the job's own: the due jobs that are claimed before it.
WITH RECURSIVE {lanes},
mine AS (
    SELECT queue, priority, run_at, id FROM holdfast.jobs WHERE id = :job_id AND state = 'queued'
)
SELECT
    now() AS now,
    coalesce((SELECT suspect FROM holdfast.jobs WHERE id = :job_id), false) AS suspect,
    EXISTS (SELECT FROM mine WHERE run_at = 'infinity') AS held,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM mine
            JOIN lane ON lane.priority <= mine.priority AND lane.run_at <= now()
            CROSS JOIN LATERAL (
                SELECT
                FROM holdfast.jobs
                WHERE state = 'queued' AND queue = lane.queue AND priority = lane.priority
                    AND run_at <= now() AND NOT suspect AND {unheld}
                    AND (lane.priority < mine.priority OR (run_at, id) < (mine.run_at, mine.id))
                ORDER BY run_at, id
                LIMIT :limit
            ) AS job
            LIMIT :limit
        ) AS first
    ) AS ahead
