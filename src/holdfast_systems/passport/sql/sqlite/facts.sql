-- name: lock_snapshot
SELECT id, status, ordered FROM passport_snapshots WHERE tenant = :tenant AND id = :id

-- name: lock_expired_snapshots
SELECT id, tenant FROM passport_snapshots
WHERE status = 'OPEN' AND created_at < :before
ORDER BY created_at LIMIT :rows_max

-- name: remove_snapshot
DELETE FROM passport_snapshots WHERE tenant = :tenant AND id = :id AND status = 'OPEN'

-- name: jobs_by_id
SELECT
    job_id, type, status, payload, attempts, max_attempts, priority, scheduled_at, lease_owner,
    lease_expires_at, started_at, finished_at, last_error
FROM passport_jobs
WHERE tenant_id = :tenant AND job_id IN (SELECT value FROM json_each(:ids))
ORDER BY job_id DESC

-- name: insert_facts
INSERT INTO passport_facts
    (id, tenant, fact_type, fact_key, schema_version, payload, payload_hash, created_at)
SELECT
    json_extract(value, '$.id'), :tenant,
    json_extract(value, '$.fact_type'), json_extract(value, '$.fact_key'),
    json_extract(value, '$.schema_version'),
    json_extract(value, '$.payload'), json_extract(value, '$.payload_hash'), now()
FROM json_each(:facts)
WHERE true
ON CONFLICT DO NOTHING

-- name: link_facts
INSERT INTO passport_fact_documents (tenant, fact_id, document_version_id)
SELECT :tenant, json_extract(value, '$.id'), :document_version_id
FROM json_each(:facts)
WHERE true
ON CONFLICT DO NOTHING

-- name: add_snapshot_facts
INSERT INTO passport_snapshot_facts (tenant, snapshot_id, fact_type, fact_key, fact_id)
SELECT
    :tenant, :snapshot_id, json_extract(value, '$.fact_type'), json_extract(value, '$.fact_key'),
    json_extract(value, '$.id')
FROM json_each(:facts)
WHERE true
ON CONFLICT DO NOTHING
