-- What the dashboard shows. Without a tenant, the rows of all tenants.

-- name: pages_versions
SELECT id, tenant, passport_id, payload_hash, issued_at, signed_at,
    qr_png IS NOT NULL AS has_qr, created_at
FROM holdfast.passport_versions
WHERE (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: pages_versions_of_tenant
SELECT id, tenant, passport_id, payload_hash, issued_at, signed_at,
    qr_png IS NOT NULL AS has_qr, created_at
FROM holdfast.passport_versions
WHERE tenant = :tenant AND (created_at, id) < (:before_time, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :rows_max

-- name: pages_version
SELECT id, tenant, passport_id, snapshot_id, rules_id, build_id, issued_at,
    payload, payload_hash, proof_root, receipt, receipt_hash,
    key_id, signature, public_key, signed_at, qr_text, qr_png, created_at
FROM holdfast.passport_versions WHERE id = :id AND tenant = coalesce(:tenant, tenant)
