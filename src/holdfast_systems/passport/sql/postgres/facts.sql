-- name: lock_snapshot
SELECT id, status, ordered FROM holdfast.passport_snapshots
WHERE tenant = :tenant AND id = :id FOR UPDATE

-- name: lock_expired_snapshots
SELECT id, tenant FROM holdfast.passport_snapshots
WHERE status = 'OPEN' AND created_at < :before
ORDER BY created_at LIMIT :rows_max FOR UPDATE SKIP LOCKED

-- name: remove_snapshot
SELECT holdfast.passport_remove_snapshot(:tenant, :id)

-- name: jobs_by_id
SELECT
    job_id, type, status, payload, attempts, max_attempts, priority, scheduled_at, lease_owner,
    lease_expires_at, started_at, finished_at, last_error
FROM holdfast.passport_jobs
WHERE tenant_id = :tenant AND job_id = ANY (
    ARRAY(SELECT json_array_elements_text(:ids::json))::uuid[]
)
ORDER BY job_id DESC

-- name: insert_facts
INSERT INTO holdfast.passport_facts
    (id, tenant, fact_type, fact_key, schema_version, payload, payload_hash, created_at)
SELECT id, :tenant, fact_type, fact_key, schema_version, payload, payload_hash, now()
FROM json_to_recordset(:facts::json) AS given (
    id uuid, fact_type text, fact_key text, schema_version text, payload text, payload_hash text
)
ON CONFLICT DO NOTHING

-- name: link_facts
INSERT INTO holdfast.passport_fact_documents (tenant, fact_id, document_version_id)
SELECT :tenant, id, :document_version_id
FROM json_to_recordset(:facts::json) AS given (id uuid)
ON CONFLICT DO NOTHING

-- name: add_snapshot_facts
INSERT INTO holdfast.passport_snapshot_facts (tenant, snapshot_id, fact_type, fact_key, fact_id)
SELECT :tenant, :snapshot_id, fact_type, fact_key, id
FROM json_to_recordset(:facts::json) AS given (id uuid, fact_type text, fact_key text)
ON CONFLICT DO NOTHING
