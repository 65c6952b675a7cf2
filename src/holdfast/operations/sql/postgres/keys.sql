-- name: check_key
-- By a function: a role that may only read sees no hashes, but can be asked for a key.
SELECT
    id, name, tenant, scopes, requests_per_second, created_at, created_by, expires_at, revoked_at,
    replaced_by, now() AS now, pepper, is_right
FROM holdfast.check_key(:id, :hash)
