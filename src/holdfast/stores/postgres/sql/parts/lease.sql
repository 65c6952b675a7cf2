-- Leases jobs, whose ids the statement goes on to name. Included by claim.sql.
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now(),
    alone = :alone
