-- name: check_key
SELECT
    id, name, tenant, scopes, requests_per_second, created_at, created_by, expires_at, revoked_at,
    replaced_by, now() AS now, pepper, hash = :hash AS is_right
FROM api_keys WHERE id = :id
