-- name: roles_installed
SELECT to_regclass('holdfast.installed_roles') IS NOT NULL

-- name: recorded_roles
SELECT prefix, callers, decisions FROM holdfast.installed_roles

-- name: prepare_record_of_roles
CREATE TABLE IF NOT EXISTS holdfast.installed_roles (
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    prefix text NOT NULL,
    callers text[] NOT NULL,
    decisions text NOT NULL
)

-- name: record_roles
INSERT INTO holdfast.installed_roles (prefix, callers, decisions)
VALUES (:prefix, :callers, :decisions)
ON CONFLICT (id) DO UPDATE
SET prefix = excluded.prefix, callers = excluded.callers, decisions = excluded.decisions
WHERE (installed_roles.prefix, installed_roles.callers, installed_roles.decisions)
    IS DISTINCT FROM (excluded.prefix, excluded.callers, excluded.decisions)

-- name: installer
SELECT
    current_user AS login,
    rolsuper OR rolcreaterole AS may_create_roles,
    format('ALTER ROLE %I CREATEROLE', rolname) AS allow_roles,
    has_database_privilege(datname, 'CREATE') AS may_create_schemas,
    format('GRANT CREATE ON DATABASE %I TO %I', datname, rolname) AS allow_schemas,
    pg_get_userbyid(nspowner) AS owner,
    pg_has_role(nspowner, 'USAGE') AS is_owner
FROM pg_roles
JOIN pg_database ON datname = current_database()
LEFT JOIN pg_namespace ON nspname = 'holdfast'
WHERE rolname = current_user

-- name: join_owner
SELECT format('GRANT %I TO %I', wanted.name, current_user) AS fix
FROM {our_roles} AS wanted
JOIN pg_roles AS role ON role.rolname = wanted.name
WHERE wanted.short = 'owner' AND NOT pg_has_role(role.oid, 'USAGE')

-- name: acting_owner
SELECT
    current_user AS login,
    owner.rolname AS owner,
    pg_has_role(owner.oid, 'MEMBER') AS may_act,
    format('SET LOCAL ROLE %I', owner.rolname) AS act,
    ARRAY(
        SELECT DISTINCT pg_get_userbyid(member)::text FROM pg_auth_members
        WHERE roleid = owner.oid ORDER BY 1
    ) AS members
FROM {our_roles} AS wanted
JOIN pg_roles AS owner ON owner.rolname = wanted.name
WHERE wanted.short = 'owner'

-- name: password_change
SELECT format('ALTER ROLE %I PASSWORD %L', name, :verifier::text) AS fix
FROM {our_roles} AS ours WHERE short = :role::text

-- name: known_roles
SELECT rolname AS name FROM pg_roles WHERE rolname = ANY (:names::text[])

-- name: return_to_login
-- What gives the schema back to the login that removes the roles.
SELECT format('ALTER TABLE holdfast.%I DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY',
    relname) AS fix
FROM pg_class
WHERE relnamespace = 'holdfast'::regnamespace AND (relrowsecurity OR relforcerowsecurity)
UNION ALL
SELECT format(
    'ALTER DEFAULT PRIVILEGES FOR ROLE %I GRANT EXECUTE ON FUNCTIONS TO PUBLIC', wanted.name
)
FROM {our_roles} AS wanted
WHERE short = 'owner'
UNION
SELECT format('REVOKE ALL ON DATABASE %I FROM %I', datname, ours.name)
FROM {our_roles} AS ours
JOIN pg_roles AS role ON role.rolname = ours.name
JOIN pg_database ON datname = current_database()
JOIN aclexplode(datacl) AS given ON given.grantee = role.oid

-- name: removable_roles
-- Those that nothing else in this server depends on.
SELECT
    ours.name,
    format('DROP ROLE %I', ours.name) AS fix,
    ARRAY(
        SELECT DISTINCT coalesce('database ' || datname, 'this server')
        FROM pg_shdepend
        LEFT JOIN pg_database
            ON pg_database.oid = coalesce(nullif(dbid, 0), CASE classid
                WHEN 'pg_database'::regclass THEN objid
            END)
        WHERE refclassid = 'pg_authid'::regclass AND refobjid = role.oid
        ORDER BY 1
    ) AS used_by
FROM {our_roles} AS ours
JOIN pg_roles AS role ON role.rolname = ours.name
ORDER BY ours.short = 'owner', ours.name
