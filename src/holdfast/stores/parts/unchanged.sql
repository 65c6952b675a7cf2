-- The columns of a job that its end leaves as they are.
id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags, idempotency_key,
expires_at, created_at, started_at, progress, requeued_from, breaker, trace, parent_id
