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
SELECT json_group_array(json_array(jobs.rowid, jobs.queue, jobs.tenant, jobs.fence, key))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state = 'running'

-- The statements from here on name jobs by row number and check no fence: the same transaction has
-- read the job, and SQLite has one writer at a time.

-- name: settle_succeeded
INSERT INTO history (
    {unchanged},
    state, attempt, snoozes, releases, crashes, worker, fence, run_at, finished_at, kept_until,
    result
)
SELECT
    {unchanged},
    'succeeded', attempt, snoozes, releases, crashes, lease_owner, fence + 1, run_at, :now,
    max(json_extract(value, '$[1]'), {key_expires_at}), json_extract(value, '$[2]')
FROM (SELECT value, json_extract(value, '$[0]') AS number FROM json_each(:successes))
    CROSS JOIN jobs ON jobs.rowid = number

-- name: keep_attempts
INSERT INTO attempts ({attempt})
SELECT id, fence, attempt, json_extract(value, '$.outcome'), lease_owner, started_at, :now,
    json_extract(value, '$.error_code'), json_extract(value, '$.error_text')
FROM (SELECT value, json_extract(value, '$.place[0]') AS number FROM json_each(:moves))
    CROSS JOIN jobs ON jobs.rowid = number
WHERE json_extract(value, '$.outcome') IS NOT NULL

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
    failures = coalesce(moved.failures, jobs.failures),
    suspect = max(jobs.suspect, moved.suspect)
FROM (
    SELECT
        json_extract(value, '$.place[0]') AS number, json_extract(value, '$.run_at') AS run_at,
        json_extract(value, '$.error_code') AS error_code,
        json_extract(value, '$.error_text') AS error_text,
        json_extract(value, '$.attempt_back') AS attempt_back,
        json_extract(value, '$.snoozed') AS snoozed, json_extract(value, '$.released') AS released,
        json_extract(value, '$.crashed') AS crashed, json_extract(value, '$.suspect') AS suspect,
        json_extract(value, '$.failures') AS failures
    FROM json_each(:moves)
) AS moved
WHERE jobs.rowid = moved.number

-- name: end
INSERT INTO history (
    {unchanged},
    state, attempt, snoozes, releases, crashes, worker, fence, run_at, finished_at, kept_until,
    error_code, error_text
)
SELECT
    {unchanged},
    json_extract(value, '$.state'), attempt - json_extract(value, '$.attempt_back'),
    snoozes + json_extract(value, '$.snoozed'), releases + json_extract(value, '$.released'),
    crashes + json_extract(value, '$.crashed'), lease_owner, fence + 1, {due_time}, :now,
    max(json_extract(value, '$.kept_until'), {key_expires_at}),
    coalesce(json_extract(value, '$.error_code'), error_code),
    coalesce(json_extract(value, '$.error_text'), error_text)
FROM (SELECT value, json_extract(value, '$.place[0]') AS number FROM json_each(:moves))
    CROSS JOIN jobs ON jobs.rowid = number

-- name: remove
DELETE FROM jobs WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: count
INSERT INTO history_counts (tenant, queue, state, jobs)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]')
FROM json_each(:counts) WHERE true
ON CONFLICT (tenant, queue, state) DO UPDATE SET jobs = jobs + excluded.jobs
