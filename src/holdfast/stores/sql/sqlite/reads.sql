-- name: job
SELECT id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, fence, lease_owner, lease_expires_at, run_at,
    expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
    requeued_from
FROM jobs WHERE id = :id

-- name: attempts
SELECT job_id, attempt, fence, outcome, worker, started_at, ended_at, error_code, error_text
FROM attempts WHERE job_id = :id ORDER BY fence

-- name: page
SELECT id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, fence, lease_owner, lease_expires_at, run_at,
    expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
    requeued_from
FROM jobs
WHERE id < :after
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:queue IS NULL OR queue = :queue)
    AND (:name IS NULL OR name = :name)
    AND (:tenant IS NULL OR tenant = :tenant)
    AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
ORDER BY id DESC LIMIT :limit

-- name: page_of_unsuccessful
SELECT id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, fence, lease_owner, lease_expires_at, run_at,
    expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
    requeued_from
FROM jobs INDEXED BY jobs_unsuccessful
WHERE id < :after
    AND finished_at IS NOT NULL AND result IS NULL
    AND state IN (SELECT value FROM json_each(:states))
    AND (:queue IS NULL OR queue = :queue)
    AND (:name IS NULL OR name = :name)
    AND (:tenant IS NULL OR tenant = :tenant)
    AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
ORDER BY id DESC LIMIT :limit

-- name: counts
SELECT queue, state, count(*) FROM jobs
WHERE :tenant IS NULL OR tenant = :tenant
GROUP BY queue, state ORDER BY queue, state

-- name: awaited
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND name IN (SELECT value FROM json_each(:names))
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
) OR EXISTS (
    SELECT 1 FROM lanes CROSS JOIN jobs INDEXED BY jobs_due
        ON jobs.state = 'queued' AND jobs.queue = lanes.queue AND jobs.priority = lanes.priority
    WHERE lanes.run_at <= :until AND jobs.run_at <= :until
        AND jobs.name IN (SELECT value FROM json_each(:names))
        AND (:queues IS NULL OR lanes.queue IN (SELECT value FROM json_each(:queues)))
)

-- name: due_names
SELECT jobs.name FROM lanes CROSS JOIN jobs INDEXED BY jobs_due
    ON jobs.state = 'queued' AND jobs.queue = lanes.queue AND jobs.priority = lanes.priority
WHERE lanes.run_at <= :now AND jobs.run_at <= :now
    AND (:queues IS NULL OR lanes.queue IN (SELECT value FROM json_each(:queues)))
LIMIT :limit
