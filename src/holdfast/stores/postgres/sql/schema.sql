-- name: versions_exist
SELECT to_regclass('holdfast.schema_version') IS NOT NULL

-- name: version
SELECT coalesce(max(version), 0) FROM holdfast.schema_version

-- name: applied
INSERT INTO holdfast.schema_version (version, name) VALUES (:version, :name)

-- name: lock_migrations
SELECT pg_advisory_xact_lock(:lock)
