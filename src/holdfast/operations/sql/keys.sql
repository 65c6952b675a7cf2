-- name: insert_key
INSERT INTO holdfast.api_keys (
    id, name, tenant, scopes, hash, pepper, requests_per_second, created_at, created_by, expires_at
)
VALUES (
    :id, :name, :tenant, :scopes, :hash, :pepper, :requests_per_second, now(), :created_by,
    CASE WHEN CAST(:expires_in_seconds AS double precision) IS NOT NULL
        THEN holdfast.in_seconds(CAST(:expires_in_seconds AS double precision)) END
)

-- name: find_key
SELECT
    id, name, tenant, scopes, requests_per_second, created_at, created_by, expires_at, revoked_at,
    replaced_by, now() AS now
FROM holdfast.api_keys WHERE id = :id

-- name: list_keys
SELECT
    id, name, tenant, scopes, requests_per_second, created_at, created_by, expires_at, revoked_at,
    replaced_by, now() AS now
FROM holdfast.api_keys
WHERE CAST(:ended AS boolean)
    OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
ORDER BY created_at, id

-- name: replace_key
UPDATE holdfast.api_keys
SET
    replaced_by = :replaced_by,
    expires_at = CASE
        WHEN expires_at < holdfast.in_seconds(CAST(:overlap_seconds AS double precision))
            THEN expires_at
        ELSE holdfast.in_seconds(CAST(:overlap_seconds AS double precision))
    END
WHERE id = :id AND replaced_by IS NULL AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > now())

-- name: revoke_key
UPDATE holdfast.api_keys SET revoked_at = now() WHERE id = :id AND revoked_at IS NULL

-- name: any_key
SELECT count(*) FROM (SELECT 1 FROM holdfast.api_keys LIMIT 1) AS found

-- name: peppers_of_usable_keys
SELECT DISTINCT pepper FROM holdfast.api_keys
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
