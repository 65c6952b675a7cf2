-- A leased job, in the fields of `Claimed` and in their order. It is a probe if it started while its
-- breaker was open, and that has not closed since.
id, name, arguments, queue, priority, coalesce(tenant, 'default') AS tenant, correlation_id, attempt,
max_attempts, fence, snoozes, releases, false AS expired, breaker, trace, false AS capped, failures,
CASE WHEN EXISTS (
    SELECT 1 FROM holdfast.breakers
    WHERE breakers.key = jobs.breaker AND NOT jobs.suspect
        AND breakers.opened_at <= jobs.started_at AND breakers.next_probe_at IS NOT NULL
) THEN probes ELSE 0 END AS probes,
suspect, date_part('epoch', started_at) - date_part('epoch', run_at) AS waited_seconds
