-- One job. Included by queries.sql.
SELECT
    id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, crashes, fence, lease_owner, lease_expires_at,
    run_at, expires_at, created_at, started_at, finished_at, progress, result, error_code,
    error_text, requeued_from, breaker, trace
FROM {every_job} AS job
WHERE id = :job_id
