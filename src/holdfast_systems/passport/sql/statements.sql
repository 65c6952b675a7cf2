-- name: insert_document
INSERT INTO holdfast.passport_document_versions
    (id, tenant, name, schema_version, content, content_hash, created_at)
VALUES (:id, :tenant, :name, :schema_version, :content, :content_hash, now())
ON CONFLICT DO NOTHING

-- name: find_document
SELECT id, name, schema_version, content FROM holdfast.passport_document_versions
WHERE tenant = :tenant AND id = :id

-- name: insert_snapshot
INSERT INTO holdfast.passport_snapshots (id, tenant, status, created_at)
VALUES (:id, :tenant, 'OPEN', now())
ON CONFLICT DO NOTHING

-- name: find_snapshot
SELECT id, status, ordered FROM holdfast.passport_snapshots WHERE tenant = :tenant AND id = :id

-- name: order_of_snapshot
UPDATE holdfast.passport_snapshots SET ordered = :ordered
WHERE tenant = :tenant AND id = :id AND ordered IS NULL

-- name: seal_snapshot
UPDATE holdfast.passport_snapshots SET status = 'SEALED', sealed_at = now()
WHERE tenant = :tenant AND id = :id AND status = 'OPEN'

-- name: add_snapshot_document
INSERT INTO holdfast.passport_snapshot_documents (tenant, snapshot_id, document_version_id)
VALUES (:tenant, :snapshot_id, :document_version_id)
ON CONFLICT DO NOTHING

-- name: find_snapshot_document
SELECT parsed_at FROM holdfast.passport_snapshot_documents
WHERE tenant = :tenant AND snapshot_id = :snapshot_id
    AND document_version_id = :document_version_id

-- name: mark_parsed
UPDATE holdfast.passport_snapshot_documents SET parsed_at = now()
WHERE tenant = :tenant AND snapshot_id = :snapshot_id
    AND document_version_id = :document_version_id AND parsed_at IS NULL

-- name: count_unparsed
SELECT count(*) FROM holdfast.passport_snapshot_documents
WHERE tenant = :tenant AND snapshot_id = :snapshot_id AND parsed_at IS NULL

-- name: count_facts
SELECT count(*) FROM holdfast.passport_snapshot_facts
WHERE tenant = :tenant AND snapshot_id = :snapshot_id

-- name: find_conflict
SELECT there.fact_key FROM holdfast.passport_snapshot_facts AS there
JOIN holdfast.passport_facts AS fact
    ON fact.tenant = there.tenant AND fact.fact_type = there.fact_type
    AND fact.fact_key = there.fact_key AND fact.id <> there.fact_id
JOIN holdfast.passport_fact_documents AS origin
    ON origin.tenant = fact.tenant AND origin.fact_id = fact.id
WHERE there.tenant = :tenant AND there.snapshot_id = :snapshot_id
    AND origin.document_version_id = :document_version_id
ORDER BY there.fact_key LIMIT 1

-- name: facts_of_snapshot
SELECT fact.fact_type, fact.fact_key, fact.schema_version, fact.payload
FROM holdfast.passport_snapshot_facts AS there
JOIN holdfast.passport_facts AS fact ON fact.tenant = there.tenant AND fact.id = there.fact_id
WHERE there.tenant = :tenant AND there.snapshot_id = :snapshot_id

-- name: insert_rules
INSERT INTO holdfast.passport_rules
    (id, tenant, name, status, source, source_hash, created_at)
VALUES (:id, :tenant, :name, 'DRAFT', :source, :source_hash, now())
ON CONFLICT DO NOTHING

-- name: find_rules
SELECT id, status, source FROM holdfast.passport_rules WHERE tenant = :tenant AND id = :id

-- name: publish_rules
UPDATE holdfast.passport_rules SET status = 'PUBLISHED', published_at = now()
WHERE tenant = :tenant AND id = :id AND status = 'DRAFT'

-- name: insert_version
INSERT INTO holdfast.passport_versions
    (id, tenant, passport_id, snapshot_id, rules_id, build_id, issued_at,
     payload, payload_hash, proof_root, receipt, receipt_hash, created_at)
VALUES
    (:id, :tenant, :passport_id, :snapshot_id, :rules_id, :build_id, :issued_at,
     :payload, :payload_hash, :proof_root, :receipt, :receipt_hash, now())
ON CONFLICT DO NOTHING

-- name: find_version
SELECT id, tenant, passport_id, snapshot_id, rules_id, build_id, issued_at,
    payload, payload_hash, proof_root, receipt, receipt_hash,
    key_id, signature, public_key, signed_at, qr_text, qr_png, created_at
FROM holdfast.passport_versions WHERE tenant = :tenant AND id = :id

-- name: sign_version
UPDATE holdfast.passport_versions
SET key_id = :key_id, signature = :signature, public_key = :public_key, signed_at = now()
WHERE tenant = :tenant AND id = :id AND signature IS NULL

-- name: draw_version
UPDATE holdfast.passport_versions SET qr_text = :qr_text, qr_png = :qr_png
WHERE tenant = :tenant AND id = :id AND qr_png IS NULL

-- name: versions_after
SELECT id, tenant, passport_id, snapshot_id, rules_id, build_id, issued_at,
    payload, payload_hash, proof_root, receipt, receipt_hash,
    key_id, signature, public_key, signed_at, qr_text, qr_png, created_at
FROM holdfast.passport_versions WHERE id > :after ORDER BY id LIMIT :rows_max

-- name: append_audit_event
INSERT INTO holdfast.passport_audit_events
    (id, tenant, event_type, aggregate_type, aggregate_id, job_id, payload, occurred_at)
VALUES (:id, :tenant, :event_type, :aggregate_type, :aggregate_id, :job_id, :payload, now())

-- name: audit_of_aggregate
SELECT event_type, aggregate_type, aggregate_id, job_id, payload, occurred_at
FROM holdfast.passport_audit_events
WHERE tenant = :tenant AND aggregate_id = :aggregate_id ORDER BY occurred_at, event_type
