-- Writes, here and in the other files, take as few steps as possible. Each step gives up the
-- interpreter's lock; a busy event loop takes milliseconds to give it back, and the database stays
-- locked. So all rows of a statement come and go as JSON, in one step.

-- name: enqueue
INSERT INTO jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, expires_at, created_at, tenant,
    correlation_id, tags, idempotency_key, breaker, trace, parent_id
) VALUES

-- name: live_id
SELECT jobs.id FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value LIMIT 1

-- name: ended_id
SELECT history.id FROM json_each(:ids) CROSS JOIN history ON history.id = value LIMIT 1

-- name: keep_keys
INSERT OR REPLACE INTO idempotency_keys (tenant, key, job_id, body_hash, expires_at)
VALUES (:tenant, :key, :job_id, :body_hash, :expires_at)

-- name: kept_keys
SELECT job_id, body_hash FROM idempotency_keys
WHERE tenant = :tenant AND key = :key AND expires_at > :now

-- name: queues_of
SELECT DISTINCT jobs.queue
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
