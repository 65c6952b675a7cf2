-- The statements of a worker of version 1, which runs on the schema that follows its own.

-- name: insert_jobs
INSERT INTO jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, expires_at, created_at, tenant,
    correlation_id, tags, idempotency_key
) VALUES (:a, :b, :c, :d, :e, :f, :g, :h, :i, :j, :k, :l, :m)

-- name: existing_job
SELECT jobs.id FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value LIMIT 1

-- name: key
SELECT job_id, body_hash FROM idempotency_keys
WHERE tenant = :tenant AND key = :key AND expires_at > :now

-- name: keep_key
INSERT OR REPLACE INTO idempotency_keys (tenant, key, job_id, body_hash, expires_at)
VALUES (:tenant, :key, :job_id, :body_hash, :expires_at)

-- name: prune_keys
DELETE FROM idempotency_keys WHERE rowid IN (
    SELECT rowid FROM idempotency_keys WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)

-- name: due_lanes
SELECT queue, priority FROM lanes WHERE run_at <= :now

-- name: due_jobs
SELECT json_group_array(json_array(
    number, id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts,
    fence, snoozes, releases, expires_at, run_at
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' AND queue = :queue AND priority = :priority AND run_at <= :now
        AND name IN (SELECT value FROM json_each(:names))
    ORDER BY run_at, id LIMIT :limit
)

-- name: due_job
SELECT json_group_array(json_array(
    rowid, id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts,
    fence, snoozes, releases, expires_at, run_at
))
FROM jobs WHERE id = :id AND state = 'queued' AND run_at <= :now

-- name: lease
UPDATE jobs SET
    state = 'running', attempt = attempt + 1, fence = fence + 1, lease_owner = :worker,
    lease_expires_at = :lease_expires_at, started_at = :now
FROM json_each(:numbers) AS due
WHERE jobs.rowid = due.value

-- name: renew
UPDATE jobs SET lease_expires_at = :lease_expires_at
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS fence
    FROM json_each(:leases)
) AS lease
WHERE jobs.id = lease.id AND jobs.fence = lease.fence AND jobs.state = 'running'

-- name: found
SELECT json_group_array(json_array(jobs.id, jobs.state, jobs.fence))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value

-- name: progress
UPDATE jobs SET progress = :progress WHERE id = :id AND fence = :fence AND state = 'running'

-- name: succeed
UPDATE jobs SET
    state = 'succeeded', fence = jobs.fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    finished_at = :now, result = settled.result, error_code = NULL, error_text = NULL
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS fence,
        json_extract(value, '$[2]') AS result
    FROM json_each(:settlements)
) AS settled
WHERE jobs.id = settled.id AND jobs.fence = settled.fence AND jobs.state = 'running'

-- name: settle
UPDATE jobs SET
    state = settled.state, fence = jobs.fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    attempt = jobs.attempt - settled.attempt_back,
    snoozes = jobs.snoozes + settled.snoozed,
    releases = jobs.releases + settled.released,
    run_at = CASE settled.state WHEN 'queued' THEN settled.run_at ELSE jobs.run_at END,
    finished_at = CASE settled.state WHEN 'queued' THEN NULL ELSE :now END,
    result = CASE settled.state WHEN 'succeeded' THEN settled.result END,
    error_code = CASE settled.state
        WHEN 'succeeded' THEN NULL ELSE coalesce(settled.error_code, jobs.error_code) END,
    error_text = CASE settled.state
        WHEN 'succeeded' THEN NULL ELSE coalesce(settled.error_text, jobs.error_text) END
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS fence,
        json_extract(value, '$[2]') AS state, json_extract(value, '$[3]') AS run_at,
        json_extract(value, '$[4]') AS result, json_extract(value, '$[5]') AS error_code,
        json_extract(value, '$[6]') AS error_text, json_extract(value, '$[7]') AS attempt_back,
        json_extract(value, '$[8]') AS snoozed, json_extract(value, '$[9]') AS released
    FROM json_each(:settlements)
) AS settled
WHERE jobs.id = settled.id AND jobs.fence = settled.fence AND jobs.state = 'running'

-- name: keep_attempts
INSERT INTO attempts
    (job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text)
SELECT jobs.id, jobs.fence, jobs.attempt, json_extract(value, '$[10]'), jobs.lease_owner,
    jobs.started_at, :now, json_extract(value, '$[5]'), json_extract(value, '$[6]')
FROM json_each(:settlements) CROSS JOIN jobs ON jobs.id = json_extract(value, '$[0]')
WHERE jobs.fence = json_extract(value, '$[1]') AND jobs.state = 'running'
    AND json_extract(value, '$[10]') IS NOT NULL
ON CONFLICT (job_id, fence) DO NOTHING

-- name: queues_of
SELECT DISTINCT jobs.queue
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value

-- name: lapsed
SELECT json_group_array(json_array(
    number, id, name, queue, tenant, correlation_id, attempt, fence, lease_owner, max_attempts
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_expires_at < :now
    ORDER BY lease_expires_at LIMIT :limit
)

-- name: keep_lost_attempts
INSERT INTO attempts
    (job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text)
SELECT id, fence, attempt, 'lost', lease_owner, started_at, :now, 'LEASE_LOST',
    'the worker ' || lease_owner || ' stopped renewing its lease'
FROM jobs WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: reclaim
UPDATE jobs SET
    state = CASE WHEN attempt >= max_attempts THEN 'dead' ELSE 'queued' END,
    fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    run_at = CASE WHEN attempt >= max_attempts THEN run_at ELSE :now END,
    finished_at = CASE WHEN attempt >= max_attempts THEN :now END,
    error_code = 'LEASE_LOST',
    error_text = 'the worker ' || lease_owner || ' stopped renewing its lease'
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: expired
SELECT json_group_array(json_array(
    number, id, name, queue, tenant, correlation_id, attempt, fence, NULL, max_attempts
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_expiring
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= :now
    ORDER BY expires_at LIMIT :limit
)

-- name: expire
UPDATE jobs SET
    state = 'canceled', fence = fence + 1, finished_at = :now, error_code = 'EXPIRED',
    error_text = 'the job expired before it started'
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: cancelable
SELECT json_group_array(json_array(jobs.rowid, jobs.id, jobs.state))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state IN ('queued', 'running')

-- name: keep_canceled_attempts
INSERT INTO attempts
    (job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text)
SELECT id, fence, attempt, 'canceled', lease_owner, started_at, :now, 'CANCELED',
    'the job was canceled while it ran'
FROM jobs WHERE rowid IN (SELECT value FROM json_each(:numbers)) AND state = 'running'

-- name: cancel
UPDATE jobs SET
    state = 'canceled', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    finished_at = :now, error_code = 'CANCELED',
    error_text = CASE
        WHEN lease_owner IS NULL THEN 'the job was canceled while it waited'
        ELSE 'the job was canceled while it ran'
    END
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: retry
UPDATE jobs SET run_at = :now WHERE id = :id AND state = 'queued'

-- name: requeue
INSERT INTO jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, created_at, tenant, correlation_id,
    tags, requeued_from
)
SELECT :new_id, name, queue, priority, arguments, max_attempts, :now, :now, tenant, correlation_id,
    tags, id
FROM jobs WHERE id = :id AND state NOT IN ('queued', 'running')

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
