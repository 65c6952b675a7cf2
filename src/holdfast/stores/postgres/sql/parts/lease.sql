-- Leases the jobs that the rest of the statement selects.
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now(),
    alone = :alone
