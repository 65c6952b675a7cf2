-- The statements of a worker of version 5, which runs on the schema that follows its own.

-- name: insert_jobs
INSERT INTO jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, expires_at, created_at, tenant,
    correlation_id, tags, idempotency_key
) VALUES (:a, :b, :c, :d, :e, :f, :g, :h, :i, :j, :k, :l, :m)

-- name: existing_job
SELECT jobs.id FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value LIMIT 1

-- name: ended_job
SELECT history.id FROM json_each(:ids) CROSS JOIN history ON history.id = value LIMIT 1

-- name: key
SELECT job_id, body_hash FROM idempotency_keys
WHERE tenant = :tenant AND key = :key AND expires_at > :now

-- name: keep_key
INSERT OR REPLACE INTO idempotency_keys (tenant, key, job_id, body_hash, expires_at)
VALUES (:tenant, :key, :job_id, :body_hash, :expires_at)

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
        AND name IN (SELECT value FROM json_each(:names)) AND suspect = 0
    ORDER BY run_at, id LIMIT :limit
)

-- name: due_suspect
SELECT json_group_array(json_array(
    number, id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts,
    fence, snoozes, releases, expires_at, run_at
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_suspects
    WHERE suspect = 1 AND state = 'queued' AND run_at <= :now
        AND name IN (SELECT value FROM json_each(:names))
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
        AND queue NOT IN (SELECT value FROM json_each(:except_queues))
    ORDER BY priority, run_at, id LIMIT 1
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
    lease_expires_at = :lease_expires_at, started_at = :now, alone = :alone
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
SELECT json_group_array(json_array(id, state, fence)) FROM (
    SELECT jobs.id, jobs.state, jobs.fence
    FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
    UNION ALL
    SELECT history.id, history.state, history.fence
    FROM json_each(:ids) CROSS JOIN history ON history.id = value
)

-- name: progress
UPDATE jobs SET progress = :progress WHERE id = :id AND fence = :fence AND state = 'running'

-- name: held
SELECT json_group_array(json_array(
    jobs.rowid, jobs.queue, jobs.tenant, jobs.id, jobs.fence
))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state = 'running'

-- The statements from here on name jobs by the numbers of their rows, and no fence: what was read
-- of a job in the same transaction stands, because only one can write at a time.

-- A job is kept at least as long as its key, which would lead to nothing otherwise.

-- name: succeed
INSERT INTO history (
    id, kept_until, state, queue, name, tenant, correlation_id, tags, priority, attempt,
    max_attempts, snoozes, releases, crashes, fence, run_at, expires_at, created_at, started_at,
    finished_at, requeued_from, idempotency_key, arguments, progress, result
)
SELECT
    id, max(
        json_extract(value, '$[1]'),
        coalesce(
            (
                SELECT kept.expires_at FROM idempotency_keys AS kept
                WHERE kept.tenant = coalesce(jobs.tenant, '')
                    AND kept.key = jobs.idempotency_key AND kept.job_id = jobs.id
            ),
            0
        )
    ),
    'succeeded', queue, name, tenant, correlation_id, tags, priority, attempt, max_attempts, snoozes, releases, crashes, fence + 1, run_at, expires_at,
    created_at, started_at, :now, requeued_from, idempotency_key, arguments, progress,
    json_extract(value, '$[2]')
FROM (SELECT value, json_extract(value, '$[0]') AS number FROM json_each(:successes))
    CROSS JOIN jobs ON jobs.rowid = number

-- name: keep_attempts
INSERT INTO attempts
    (job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text)
SELECT id, fence, attempt, json_extract(value, '$[11]'), lease_owner, started_at, :now,
    json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM (SELECT value, json_extract(value, '$[0]') AS number FROM json_each(:moves))
    CROSS JOIN jobs ON jobs.rowid = number
WHERE json_extract(value, '$[11]') IS NOT NULL

-- name: put_back
UPDATE jobs SET
    state = 'queued', fence = jobs.fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    run_at = moved.run_at, alone = 0,
    error_code = coalesce(moved.error_code, jobs.error_code),
    error_text = coalesce(moved.error_text, jobs.error_text),
    attempt = jobs.attempt - moved.attempt_back,
    snoozes = jobs.snoozes + moved.snoozed,
    releases = jobs.releases + moved.released,
    crashes = jobs.crashes + moved.crashed,
    suspect = max(jobs.suspect, moved.suspect)
FROM (
    SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[3]') AS run_at,
        json_extract(value, '$[4]') AS error_code, json_extract(value, '$[5]') AS error_text,
        json_extract(value, '$[6]') AS attempt_back, json_extract(value, '$[7]') AS snoozed,
        json_extract(value, '$[8]') AS released, json_extract(value, '$[9]') AS crashed,
        json_extract(value, '$[10]') AS suspect
    FROM json_each(:moves)
) AS moved
WHERE jobs.rowid = moved.number

-- name: end
INSERT INTO history (
    id, kept_until, state, queue, name, tenant, correlation_id, tags, priority, attempt,
    max_attempts, snoozes, releases, crashes, fence, run_at, expires_at, created_at, started_at,
    finished_at, requeued_from, idempotency_key, error_code, error_text, arguments, progress
)
SELECT
    id, max(
        json_extract(value, '$[2]'),
        coalesce(
            (
                SELECT kept.expires_at FROM idempotency_keys AS kept
                WHERE kept.tenant = coalesce(jobs.tenant, '')
                    AND kept.key = jobs.idempotency_key AND kept.job_id = jobs.id
            ),
            0
        )
    ),
    json_extract(value, '$[1]'), queue, name, tenant, correlation_id, tags, priority, attempt - json_extract(value, '$[6]'), max_attempts,
    snoozes + json_extract(value, '$[7]'), releases + json_extract(value, '$[8]'),
    crashes + json_extract(value, '$[9]'), fence + 1, run_at, expires_at, created_at, started_at,
    :now, requeued_from, idempotency_key, coalesce(json_extract(value, '$[4]'), error_code),
    coalesce(json_extract(value, '$[5]'), error_text), arguments, progress
FROM (SELECT value, json_extract(value, '$[0]') AS number FROM json_each(:moves))
    CROSS JOIN jobs ON jobs.rowid = number

-- name: remove
DELETE FROM jobs WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: count
INSERT INTO history_counts (tenant, queue, state, jobs)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]')
FROM json_each(:counts) WHERE true
ON CONFLICT (tenant, queue, state) DO UPDATE SET jobs = jobs + excluded.jobs

-- name: queues_of
SELECT DISTINCT jobs.queue
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value

-- name: lapsed
SELECT json_group_array(json_array(
    number, queue, tenant, id, name, correlation_id, attempt, fence, lease_owner, max_attempts,
    crashes, alone, suspect
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_expires_at < :now
    ORDER BY lease_expires_at LIMIT :limit
)

-- name: held_by
SELECT json_group_array(json_array(
    number, queue, tenant, id, name, correlation_id, attempt, fence, lease_owner, max_attempts,
    crashes, alone, suspect
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_owner = :worker
    ORDER BY lease_expires_at LIMIT :limit
)

-- name: expired
SELECT json_group_array(json_array(
    number, queue, tenant, id, name, correlation_id, attempt, fence, NULL, max_attempts, crashes,
    0, suspect
))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_expiring
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= :now
    ORDER BY expires_at LIMIT :limit
)

-- name: cancelable
SELECT json_group_array(json_array(jobs.rowid, jobs.queue, jobs.tenant, jobs.id, jobs.state))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state IN ('queued', 'running')

-- name: retry
UPDATE jobs SET run_at = :now WHERE id = :id AND state = 'queued'

-- name: requeue
INSERT INTO jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, created_at, tenant, correlation_id,
    tags, requeued_from
)
SELECT :new_id, name, queue, priority, coalesce(:arguments, arguments), max_attempts, :now, :now,
    tenant, correlation_id, tags, id
FROM (
    SELECT * FROM (
        SELECT id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags
        FROM history WHERE id = :id
        UNION ALL
        SELECT id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags
        FROM jobs WHERE id = :id AND finished_at IS NOT NULL
    ) LIMIT 1
)

-- name: requeued_before
SELECT EXISTS (SELECT 1 FROM requeues WHERE job_id = :id)

-- name: note_requeue
INSERT INTO requeues (job_id, new_id, requeued_at, kept_until)
VALUES (
    :id, :new_id, :now, coalesce((SELECT kept_until FROM history WHERE id = :id), :kept_until)
)
ON CONFLICT (job_id) DO UPDATE SET new_id = excluded.new_id, requeued_at = excluded.requeued_at
