-- name: insert_bulk_change
INSERT INTO holdfast.bulk_changes (
    id, tenant, action, state, filter, again, jobs_per_second, made_by, because, total, capped,
    requeued_before, counts, created_at, expires_at
)
VALUES (
    :id, :tenant, :action, 'previewed', :filter, :again, :jobs_per_second, :made_by, :because,
    :total, :capped, :requeued_before, :counts, now(), holdfast.in_seconds(:kept_seconds)
)

-- name: find_bulk_change
SELECT
    id, tenant, action, state, filter, again, jobs_per_second, made_by, because, total, capped,
    requeued_before, counts, done, changed, requeued_already, moved_on, refused, created_at,
    started_at, running_since, running_from, ended_at, error_text, next_step_at, now() AS read_at
FROM holdfast.bulk_changes
WHERE id = :id AND state <> 'expired' AND (tenant = :tenant OR CAST(:tenant AS text) IS NULL)

-- name: page_of_bulk_changes
SELECT
    id, tenant, action, state, filter, again, jobs_per_second, made_by, because, total, capped,
    requeued_before, counts, done, changed, requeued_already, moved_on, refused, created_at,
    started_at, running_since, running_from, ended_at, error_text, next_step_at, now() AS read_at
FROM holdfast.bulk_changes
WHERE id < :before AND state <> 'expired'
    AND (tenant = :tenant OR CAST(:tenant AS text) IS NULL)
ORDER BY id DESC LIMIT :rows_max

-- name: jobs_of_bulk_change
SELECT job_id FROM holdfast.bulk_jobs
WHERE change_id = :id AND position > :after
ORDER BY position LIMIT :rows_max

-- name: run_bulk_change
UPDATE holdfast.bulk_changes
SET state = 'running', started_at = coalesce(started_at, now()), running_since = now(),
    running_from = done, next_step_at = now(), expires_at = NULL, error_text = NULL,
    owner = NULL, lease_expires_at = NULL
WHERE id = :id AND state = :source

-- name: pause_bulk_change
UPDATE holdfast.bulk_changes
SET state = 'paused', owner = NULL, lease_expires_at = NULL
WHERE id = :id AND state = :source

-- name: end_bulk_change
UPDATE holdfast.bulk_changes
SET state = :state, ended_at = now(), expires_at = holdfast.in_seconds(:kept_seconds),
    owner = NULL, lease_expires_at = NULL
WHERE id = :id AND state = :source

-- name: due_bulk_changes
-- Tenants take turns: one with many changes, leased ones included, comes after one with few.
SELECT id FROM (
    SELECT id, next_step_at, is_free,
        row_number() OVER (PARTITION BY tenant ORDER BY is_free, next_step_at, id) AS place
    FROM (
        SELECT id, tenant, next_step_at, owner IS NULL OR lease_expires_at <= now() AS is_free
        FROM holdfast.bulk_changes
        WHERE state = 'running'
    ) AS running
    WHERE NOT is_free OR next_step_at <= now()
) AS placed
WHERE is_free
ORDER BY place, next_step_at, id LIMIT :rows_max

-- name: claim_bulk_change
UPDATE holdfast.bulk_changes
SET owner = :owner, fence = fence + 1, lease_expires_at = holdfast.in_seconds(:lease_seconds)
WHERE id = :id AND state = 'running' AND (owner IS NULL OR lease_expires_at <= now())

-- name: fence_of_bulk_change
SELECT fence FROM holdfast.bulk_changes WHERE id = :id

-- name: renew_bulk_change
UPDATE holdfast.bulk_changes
SET lease_expires_at = holdfast.in_seconds(:lease_seconds)
WHERE id = :id AND state = 'running' AND owner = :owner AND fence = :fence

-- name: advance_bulk_change
UPDATE holdfast.bulk_changes
SET done = done + :jobs, changed = changed + :changed,
    requeued_already = requeued_already + :requeued_already, moved_on = moved_on + :moved_on,
    refused = refused + :refused, next_step_at = :next_step_at
WHERE id = :id AND owner = :owner AND fence = :fence AND done = :done

-- name: fail_bulk_change
UPDATE holdfast.bulk_changes
SET state = 'paused', error_text = :error_text, owner = NULL, lease_expires_at = NULL
WHERE id = :id AND state = 'running' AND owner = :owner AND fence = :fence

-- name: release_bulk_change
UPDATE holdfast.bulk_changes SET owner = NULL, lease_expires_at = NULL
WHERE id = :id AND state = 'running' AND owner = :owner AND fence = :fence

-- name: release_bulk_changes
UPDATE holdfast.bulk_changes SET owner = NULL, lease_expires_at = NULL
WHERE state = 'running' AND owner = :owner

-- name: expire_bulk_changes
UPDATE holdfast.bulk_changes SET state = 'expired'
WHERE id IN (
    SELECT id FROM holdfast.bulk_changes
    WHERE expires_at <= now() AND state <> 'expired'
    ORDER BY expires_at LIMIT :rows_max
) AND expires_at <= now()

-- name: expired_bulk_change
SELECT id FROM holdfast.bulk_changes
WHERE expires_at <= now() AND state = 'expired'
ORDER BY expires_at LIMIT 1
