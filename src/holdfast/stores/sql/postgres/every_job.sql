-- All jobs, live and ended. Included by reads.sql.
(
    SELECT
        id, name, state, queue, priority, arguments, tenant, correlation_id, tags,
        idempotency_key, attempt, max_attempts, snoozes, releases, crashes, fence, lease_owner,
        lease_expires_at, run_at, expires_at, created_at, started_at, finished_at, progress,
        result, error_code, error_text, requeued_from, false AS in_history
    FROM holdfast.jobs
    UNION ALL
    SELECT
        id, name, state, queue, priority, arguments, tenant, correlation_id, tags,
        idempotency_key, attempt, max_attempts, snoozes, releases, crashes, fence,
        NULL::text COLLATE "C", NULL::timestamptz, run_at, expires_at, created_at, started_at,
        finished_at, progress, result, error_code, error_text, requeued_from, true
    FROM holdfast.history
)
