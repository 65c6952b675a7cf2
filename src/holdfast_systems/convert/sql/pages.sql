-- What the dashboard shows. Without a tenant, the rows of all tenants.

-- name: pages_conversions
SELECT id, tenant, status, mapping, original_filename, attempts, created_at, updated_at
FROM holdfast.convert_jobs
WHERE id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: pages_conversions_of_tenant
SELECT id, tenant, status, mapping, original_filename, attempts, created_at, updated_at
FROM holdfast.convert_jobs
WHERE tenant = :tenant AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: pages_conversion
SELECT
    shown.id, shown.tenant, shown.status, shown.mapping, shown.original_filename, shown.attempts,
    shown.created_at, shown.updated_at, shown.started_at, shown.completed_at, shown.failed_at,
    shown.result_path, shown.error_code, shown.error_message, own.upload_id, own.pdf_bytes,
    own.result_bytes, own.upload_removed_at
FROM holdfast.convert_jobs AS shown
JOIN holdfast.convert_conversions AS own ON own.job_id = shown.id
WHERE shown.id = :id AND shown.tenant = coalesce(:tenant, shown.tenant)
