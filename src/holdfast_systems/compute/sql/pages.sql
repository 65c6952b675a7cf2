-- What the dashboard shows. Without a tenant, the rows of all tenants.

-- name: pages_requests
SELECT
    job.id, job.tenant_id, job.status, job.app_id, job.definition, job.version, job.attempts,
    job.created_at, job.ended_at, result.score
FROM holdfast.job AS job
LEFT JOIN holdfast.compute_results AS result ON result.job_id = job.id
WHERE job.id < :before
ORDER BY job.id DESC
LIMIT :rows_max

-- name: pages_requests_of_tenant
SELECT
    job.id, job.tenant_id, job.status, job.app_id, job.definition, job.version, job.attempts,
    job.created_at, job.ended_at, result.score
FROM holdfast.job AS job
LEFT JOIN holdfast.compute_results AS result ON result.job_id = job.id
WHERE job.tenant_id = :tenant AND job.id < :before
ORDER BY job.id DESC
LIMIT :rows_max

-- name: pages_request
SELECT
    job.id, job.tenant_id, job.status, job.app_id, job.definition, job.version, job.attempts,
    job.created_at, job.started_at, job.ended_at, job.inputs_hash, job.payload_json, job.priority,
    job.last_error, result.score, result.outputs_json
FROM holdfast.job AS job
LEFT JOIN holdfast.compute_results AS result ON result.job_id = job.id
WHERE job.id = :id AND job.tenant_id = coalesce(:tenant, job.tenant_id)
