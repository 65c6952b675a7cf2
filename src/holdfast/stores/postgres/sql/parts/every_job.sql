-- All jobs, live and ended. Included by queries.sql.
(
    SELECT
        id, name, state, queue, priority, arguments, tenant, correlation_id, tags,
        idempotency_key, attempt, max_attempts, snoozes, releases, crashes, fence, lease_owner,
        lease_expires_at,
        CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END AS run_at,
        expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
        requeued_from, breaker, trace, false AS in_history
    FROM holdfast.jobs
    UNION ALL
    SELECT
        id, name, state, queue, priority, arguments, tenant, correlation_id, tags,
        idempotency_key, attempt, max_attempts, snoozes, releases, crashes, fence,
        NULL::text COLLATE "C", NULL::timestamptz, run_at, expires_at, created_at, started_at,
        finished_at, progress, result, error_code, error_text, requeued_from, breaker, trace, true
    FROM holdfast.history
)
