-- name: renew
UPDATE jobs SET lease_expires_at = :lease_expires_at
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS fence
    FROM json_each(:leases)
) AS lease
WHERE jobs.id = lease.id AND jobs.fence = lease.fence AND jobs.state = 'running'

-- name: release_strays
SELECT json_group_array(json_array(number, queue, tenant)) FROM (
    SELECT jobs.rowid AS number, queue, tenant FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_owner = :worker
        AND (id, fence) NOT IN (
            SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]')
            FROM json_each(:known)
        )
    LIMIT :limit
)

-- name: progress
UPDATE jobs SET progress = :progress WHERE id = :id AND fence = :fence AND state = 'running'

-- name: fences
SELECT json_group_array(json_array(id, state, fence)) FROM (
    SELECT jobs.id, jobs.state, jobs.fence
    FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
    UNION ALL
    SELECT history.id, history.state, history.fence
    FROM json_each(:ids) CROSS JOIN history ON history.id = value
)

-- name: leased
SELECT json_group_array(json_array(
    jobs.rowid, jobs.queue, jobs.tenant, jobs.id, jobs.fence
))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state = 'running'

-- The statements from here on name jobs by the numbers of their rows, and no fence: what was read
-- of a job in the same transaction stands, because only one can write at a time.

-- name: settle_succeeded
INSERT INTO history (
    id, kept_until, state, queue, name, tenant, correlation_id, tags, priority, attempt,
    max_attempts, snoozes, releases, crashes, fence, run_at, expires_at, created_at, started_at,
    finished_at, requeued_from, idempotency_key, arguments, progress, breaker, trace, result
)
SELECT
    id, max(
        json_extract(value, '$[1]'),
        {key_expires_at}
    ),
    'succeeded', queue, name, tenant, correlation_id, tags, priority, attempt, max_attempts, snoozes, releases, crashes, fence + 1, run_at, expires_at,
    created_at, started_at, :now, requeued_from, idempotency_key, arguments, progress, breaker,
    trace,
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
    finished_at, requeued_from, idempotency_key, error_code, error_text, arguments, progress,
    breaker, trace
)
SELECT
    id, max(
        json_extract(value, '$[2]'),
        {key_expires_at}
    ),
    json_extract(value, '$[1]'), queue, name, tenant, correlation_id, tags, priority, attempt - json_extract(value, '$[6]'), max_attempts,
    snoozes + json_extract(value, '$[7]'), releases + json_extract(value, '$[8]'),
    crashes + json_extract(value, '$[9]'), fence + 1,
    CASE run_at WHEN 9223372036854775807 THEN coalesce(held_run_at, created_at) ELSE run_at END,
    expires_at, created_at, started_at, :now, requeued_from, idempotency_key, coalesce(json_extract(value, '$[4]'), error_code),
    coalesce(json_extract(value, '$[5]'), error_text), arguments, progress, breaker, trace
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
