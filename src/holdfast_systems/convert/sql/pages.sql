-- What the dashboard shows. Without a tenant, the rows of all tenants. Lists read the tables instead
-- of the view: sorting the view would read all conversions of a tenant for one page.

-- name: pages_conversions
SELECT
    own.job_id AS id, own.tenant,
    CASE
        WHEN own.completed_at IS NOT NULL THEN 'complete'
        WHEN own.failed_at IS NOT NULL OR coalesce(live.state, past.state) = 'dead' THEN 'failed'
        WHEN live.state = 'running' THEN 'processing'
        ELSE coalesce(live.state, past.state)
    END AS status,
    own.mapping, own.original_filename,
    coalesce(live.attempt, past.attempt, own.attempts_made) AS attempts,
    own.created_at, own.ended_at
FROM holdfast.convert_conversions AS own
LEFT JOIN holdfast.jobs AS live ON live.id = own.job_id
LEFT JOIN holdfast.history AS past ON past.id = own.job_id
WHERE own.job_id < :before
    AND (coalesce(live.state, past.state) IS NOT NULL OR own.ended_at IS NOT NULL)
ORDER BY own.job_id DESC
LIMIT :rows_max

-- name: pages_conversions_of_tenant
SELECT
    own.job_id AS id, own.tenant,
    CASE
        WHEN own.completed_at IS NOT NULL THEN 'complete'
        WHEN own.failed_at IS NOT NULL OR coalesce(live.state, past.state) = 'dead' THEN 'failed'
        WHEN live.state = 'running' THEN 'processing'
        ELSE coalesce(live.state, past.state)
    END AS status,
    own.mapping, own.original_filename,
    coalesce(live.attempt, past.attempt, own.attempts_made) AS attempts,
    own.created_at, own.ended_at
FROM holdfast.convert_conversions AS own
LEFT JOIN holdfast.jobs AS live ON live.id = own.job_id
LEFT JOIN holdfast.history AS past ON past.id = own.job_id
WHERE own.tenant = :tenant AND own.job_id < :before
    AND (coalesce(live.state, past.state) IS NOT NULL OR own.ended_at IS NOT NULL)
ORDER BY own.job_id DESC
LIMIT :rows_max

-- name: pages_conversion
SELECT
    shown.id, shown.tenant, shown.status, shown.mapping, shown.original_filename, shown.attempts,
    shown.created_at, own.ended_at, shown.started_at, shown.completed_at, shown.failed_at,
    shown.result_path, shown.error_code, shown.error_message, own.upload_id, own.pdf_bytes,
    own.result_bytes, own.upload_removed_at
FROM holdfast.convert_jobs AS shown
JOIN holdfast.convert_conversions AS own ON own.job_id = shown.id
WHERE shown.id = :id AND shown.tenant = coalesce(:tenant, shown.tenant)
