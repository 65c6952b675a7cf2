-- Leases the jobs that the rest of the statement selects. A lease begins when its row is written,
-- after caps are locked and counted, and however long ago the statement began.
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds),
    started_at = now(), alone = :alone
