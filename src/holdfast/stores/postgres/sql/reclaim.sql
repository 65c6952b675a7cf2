-- name: reclaim
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at < now()
        AND lease_expires_at >= coalesce(
            now() - make_interval(secs => :back_seconds), '-infinity'
        )
    ORDER BY lease_expires_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT id FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
        AND expires_at >= coalesce(now() - make_interval(secs => :back_seconds), '-infinity')
    ORDER BY expires_at LIMIT :limit - (SELECT count(*) FROM lost)
    FOR UPDATE SKIP LOCKED
),
{reclaim}

-- name: reclaim_worker
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at FROM holdfast.jobs
    WHERE state = 'running' AND lease_owner = :dead_worker
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
expired AS (
    SELECT id FROM lost WHERE false
),
{reclaim}

-- name: reclaim_one
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at FROM holdfast.jobs
    WHERE id = :job_id AND lease_owner IS NOT NULL
        AND CASE
            WHEN :dead_worker::text IS NULL THEN lease_expires_at < now()
            ELSE lease_owner = :dead_worker
        END
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT id FROM holdfast.jobs
    WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL AND expires_at <= now()
        AND :dead_worker IS NULL
    FOR UPDATE SKIP LOCKED
),
{reclaim}

-- name: reclaimable
(
    SELECT id FROM holdfast.jobs
    WHERE state = 'running'
        AND CASE
            WHEN :dead_worker::text IS NULL THEN lease_expires_at < now()
            ELSE lease_owner = :dead_worker
        END
    ORDER BY lease_expires_at LIMIT :limit
)
UNION ALL
(
    SELECT id FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
        AND :dead_worker IS NULL
    ORDER BY expires_at LIMIT :limit
)
