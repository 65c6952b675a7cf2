-- Claims one job, whatever its queue.
{lease}
WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL AND run_at <= now()
    AND NOT suspect AND {breaker_closed} AND queue <> ALL ({paused_or_full})
{claimed}
