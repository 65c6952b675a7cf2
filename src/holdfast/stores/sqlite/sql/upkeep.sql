-- name: leftovers
SELECT json_group_array(json_array(number, queue, tenant, state, finished_at)) FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leftovers
    WHERE finished_at IS NOT NULL ORDER BY id LIMIT :limit
)

-- name: move_leftovers
INSERT INTO history (
    {unchanged},
    state, attempt, snoozes, releases, crashes, fence, finished_at, result, error_code, error_text,
    run_at, kept_until
)
SELECT
    {unchanged},
    state, attempt, snoozes, releases, crashes, fence, finished_at, result, error_code, error_text,
    {due_time}, max(json_extract(value, '$[1]'), {key_expires_at})
FROM (SELECT value, json_extract(value, '$[0]') AS number FROM json_each(:leftovers))
    CROSS JOIN jobs ON jobs.rowid = number

-- name: outlived
SELECT json_group_array(json_array(id, queue, tenant, state)) FROM (
    SELECT id, queue, tenant, state FROM history INDEXED BY history_kept_until
    WHERE kept_until <= :now ORDER BY kept_until LIMIT :limit
)

-- name: forget_history
DELETE FROM history WHERE id IN (SELECT value FROM json_each(:ids)) AND kept_until <= :now

-- name: forget_empty_counts
DELETE FROM history_counts WHERE jobs <= 0

-- name: forget_attempts
DELETE FROM attempts WHERE rowid IN (
    SELECT rowid FROM attempts
    WHERE ended_at <= :ended_by
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = attempts.job_id)
    ORDER BY ended_at LIMIT :limit
)

-- name: forget_keys
DELETE FROM idempotency_keys WHERE rowid IN (
    SELECT rowid FROM idempotency_keys WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)

-- name: forget_requeues
DELETE FROM requeues WHERE job_id IN (
    SELECT job_id FROM requeues WHERE kept_until <= :now ORDER BY kept_until LIMIT :limit
)

-- name: forget_workers
DELETE FROM workers WHERE id IN (
    SELECT id FROM workers WHERE seen_at <= :now - lease_seconds * :leases * 1000000 LIMIT :limit
)

-- name: forget_breakers
DELETE FROM breakers WHERE key IN (
    SELECT key FROM breakers INDEXED BY breakers_changed
    WHERE changed_at <= :changed_by AND opened_at IS NULL AND NOT letting_go LIMIT :limit
)
