-- The fields of `Due`, in their order.
id, name, arguments, queue, priority, coalesce(tenant, 'default'), correlation_id, attempt,
max_attempts, fence, snoozes, releases, expires_at, {due_time},
breaker, trace, json(failures)
