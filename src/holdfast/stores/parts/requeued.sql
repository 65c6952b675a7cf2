-- The columns that a requeued job takes over, besides its arguments.
name, queue, priority, max_attempts, tenant, correlation_id, tags, breaker, parent_id
