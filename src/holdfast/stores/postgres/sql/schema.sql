-- name: versions_exist
SELECT
    to_regclass('holdfast.schema_version') IS NOT NULL AS exist,
    has_table_privilege(to_regclass('holdfast.schema_version'), 'SELECT') AS readable

-- name: version
SELECT coalesce(max(version), 0) FROM holdfast.schema_version

-- name: call_version
SELECT holdfast.version()

-- name: applied
INSERT INTO holdfast.schema_version (version, name) VALUES (:version, :name)

-- name: lock_migrations
SELECT pg_advisory_xact_lock(x'686f6c6466617374'::bigint)

-- name: row_security
SELECT
    row_security_active('holdfast.jobs') AS is_active,
    row_security_active('holdfast.jobs') AND EXISTS (
        SELECT FROM pg_policy
        WHERE polrelid = 'holdfast.jobs'::regclass
          AND pg_get_expr(polqual, polrelid) LIKE '%holdfast.tenant%'
          AND EXISTS (
              SELECT FROM unnest(polroles) AS role (id)
              WHERE CASE id WHEN 0 THEN true ELSE pg_has_role(id, 'USAGE') END
          )
    ) AS reads_scope
