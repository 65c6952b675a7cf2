-- The columns that a new job's own values fill as they are.
id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, idempotency_key,
breaker, trace, parent_id
