-- What a claim returns: the first fields of `Claimed`, in their order, and the due time.
RETURNING
    id, name, arguments, queue, priority, coalesce(tenant, 'default') AS tenant, correlation_id,
    attempt, max_attempts, fence, snoozes, releases,
    coalesce(expires_at <= now(), false) AS expired, breaker, trace,
    queue = ANY ((SELECT queues FROM caps)::text[]) AS capped, failures, run_at
