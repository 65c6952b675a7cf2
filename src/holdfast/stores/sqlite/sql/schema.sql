-- name: create_versions
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL
) STRICT

-- name: versions_exist
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version')

-- name: version
SELECT coalesce(max(version), 0) FROM schema_version

-- name: applied
INSERT INTO schema_version (version, name, applied_at) VALUES (:version, :name, :applied_at)

-- name: file
SELECT file FROM pragma_database_list WHERE name = 'main'
