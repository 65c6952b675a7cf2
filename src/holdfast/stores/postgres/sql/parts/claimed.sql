-- What a claim returns: the first fields of `Claimed`, in their order, the due time, and how long
-- it had been due. An infinite time can't be subtracted, but its seconds can.
RETURNING
    id, name, arguments, queue, priority, coalesce(tenant, 'default') AS tenant, correlation_id,
    attempt, max_attempts, fence, snoozes, releases,
    coalesce(expires_at <= now(), false) AS expired, breaker, trace,
    queue = ANY ((SELECT queues FROM caps)::text[]) AS capped, failures, run_at,
    date_part('epoch', started_at) - date_part('epoch', run_at) AS waited_seconds
