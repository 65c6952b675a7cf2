-- name: reclaim
SELECT json_group_array(json_array({overdue}))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_expires_at < :now
    ORDER BY lease_expires_at LIMIT :limit
)

-- name: reclaim_worker
SELECT json_group_array(json_array({overdue}))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' AND lease_owner = :worker
    ORDER BY lease_expires_at LIMIT :limit
)

-- name: expired
SELECT json_group_array(json_array({overdue}))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_expiring
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= :now
    ORDER BY expires_at LIMIT :limit
)
