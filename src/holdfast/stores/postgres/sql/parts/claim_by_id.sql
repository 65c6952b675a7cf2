-- Claims one job, whatever its queue. Included by claim.sql.
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now(),
    alone = false
WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL AND run_at <= now()
    AND NOT suspect AND {breaker_closed} AND queue <> ALL ({paused_or_full})
{claimed}
