-- The fields of `_Due`, in their order.
id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts, fence, snoozes,
releases, expires_at, run_at, breaker, trace
