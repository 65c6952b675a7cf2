-- name: snapshots_of_tenant
SELECT id, status, created_at, sealed_at
FROM holdfast.passport_snapshots
WHERE tenant = :tenant AND (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: rules_of_tenant
SELECT id, name, status, source_hash, created_at, published_at
FROM holdfast.passport_rules
WHERE tenant = :tenant AND (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: versions_of_tenant
SELECT id, passport_id, snapshot_id, rules_id, build_id, issued_at, payload_hash, proof_root,
    receipt_hash, key_id, signed_at, qr_png IS NOT NULL AS has_qr, created_at
FROM holdfast.passport_versions
WHERE tenant = :tenant AND (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: versions_of_passport
SELECT id, passport_id, snapshot_id, rules_id, build_id, issued_at, payload_hash, proof_root,
    receipt_hash, key_id, signed_at, qr_png IS NOT NULL AS has_qr, created_at
FROM holdfast.passport_versions
WHERE tenant = :tenant AND passport_id = :passport_id AND (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: version_of_tenant
SELECT id, passport_id, snapshot_id, rules_id, build_id, issued_at, payload_hash, proof_root,
    receipt_hash, key_id, signed_at, qr_png IS NOT NULL AS has_qr, created_at
FROM holdfast.passport_versions WHERE tenant = :tenant AND id = :id

-- name: snapshot_of_tenant
SELECT id, status, created_at, sealed_at FROM holdfast.passport_snapshots
WHERE tenant = :tenant AND id = :id

-- name: rule_package_of_tenant
SELECT id, name, status, source_hash, created_at, published_at FROM holdfast.passport_rules
WHERE tenant = :tenant AND id = :id

-- name: documents_of_snapshot
SELECT
    there.document_version_id, document.name, document.schema_version, document.content_hash,
    there.parsed_at
FROM holdfast.passport_snapshot_documents AS there
JOIN holdfast.passport_document_versions AS document
    ON document.tenant = there.tenant AND document.id = there.document_version_id
WHERE there.tenant = :tenant AND there.snapshot_id = :snapshot_id
ORDER BY document.created_at, document.id

-- name: deliveries_of_event
SELECT
    webhook_delivery_id, webhook_endpoint_id, event_id, status, http_status, response_headers,
    response_body, delivered_at, error_message, created_at, error_code
FROM holdfast.webhook_deliveries
WHERE tenant_id = :tenant AND event_id = :event_id
ORDER BY created_at, webhook_delivery_id
