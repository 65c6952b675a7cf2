-- Each of these finds differences between the catalog and the decisions, and how to fix them. They
-- run in this order, because later ones need what earlier ones fix.

-- name: role_differences
SELECT
    'role ' || wanted.name || CASE
        WHEN role.oid IS NULL THEN ' does not exist'
        ELSE ' has the wrong attributes'
    END AS difference,
    CASE
        WHEN role.oid IS NULL THEN format(
            'CREATE ROLE %I %s', wanted.name, CASE WHEN wanted.login THEN 'LOGIN' ELSE '' END
        )
        ELSE format('ALTER ROLE %I', wanted.name)
            || CASE WHEN rolsuper THEN ' NOSUPERUSER' ELSE '' END
            || CASE WHEN rolbypassrls THEN ' NOBYPASSRLS' ELSE '' END
            || CASE WHEN rolcreaterole THEN ' NOCREATEROLE' ELSE '' END
            || CASE WHEN rolcreatedb THEN ' NOCREATEDB' ELSE '' END
            || CASE WHEN rolreplication THEN ' NOREPLICATION' ELSE '' END
            || CASE
                WHEN rolcanlogin AND NOT wanted.login THEN ' NOLOGIN'
                WHEN wanted.login AND NOT rolcanlogin THEN ' LOGIN'
                ELSE ''
            END
    END AS fix
FROM {our_roles} AS wanted
LEFT JOIN pg_roles AS role ON role.rolname = wanted.name
WHERE role.oid IS NULL
    OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication
    OR rolcanlogin <> wanted.login
ORDER BY wanted.name

-- name: member_differences
-- None of our roles may be a member of another one, or of one that sees everything. Monitoring is
-- fine.
SELECT
    format('role %s is a member of %s', member.rolname, granted.rolname) AS difference,
    format('REVOKE %I FROM %I', granted.rolname, member.rolname) AS fix
FROM pg_auth_members AS membership
JOIN pg_roles AS member ON member.oid = membership.member
JOIN pg_roles AS granted ON granted.oid = membership.roleid
JOIN {our_roles} AS ours ON ours.name = member.rolname
WHERE EXISTS (
    SELECT FROM pg_roles AS powerful
    WHERE pg_has_role(granted.oid, powerful.oid, 'MEMBER') AND (
        powerful.rolsuper OR powerful.rolbypassrls
        OR powerful.rolname IN (
            'pg_read_all_data', 'pg_write_all_data', 'pg_execute_server_program',
            'pg_read_server_files', 'pg_write_server_files'
        )
        OR powerful.rolname IN (SELECT name FROM {our_roles} AS other)
    )
)
ORDER BY 1

-- name: owner_differences
WITH found AS (
    SELECT 0 AS place, 'SCHEMA' AS kind, 'holdfast' AS name, nspowner AS owner
    FROM pg_namespace WHERE nspname = 'holdfast'
    UNION ALL
    SELECT
        1,
        CASE relkind
            WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
            ELSE 'TABLE'
        END,
        format('holdfast.%I', relname),
        relowner
    FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
        -- A sequence of a column goes with its table.
        AND NOT (relkind = 'S' AND EXISTS (
            SELECT FROM pg_depend
            WHERE objid = pg_class.oid AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i')
        ))
    UNION ALL
    SELECT 2, 'ROUTINE', oid::regprocedure::text, proowner
    FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
    UNION ALL
    SELECT 3, 'TYPE', format('holdfast.%I', typname), typowner
    FROM pg_type
    WHERE typnamespace = 'holdfast'::regnamespace AND typtype IN ('d', 'e', 'r')
)
SELECT
    format('%s %s belongs to %s', lower(kind), found.name, pg_get_userbyid(owner)) AS difference,
    format('ALTER %s %s OWNER TO %I', kind, found.name, :owner::text) AS fix
FROM found
WHERE pg_get_userbyid(owner) <> :owner::text
ORDER BY place, found.name

-- name: default_differences
-- What the owner creates later is open to nobody until there is a decision.
SELECT
    format('PUBLIC may execute new functions of %s', wanted.name) AS difference,
    format(
        'ALTER DEFAULT PRIVILEGES FOR ROLE %I REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC', wanted.name
    ) AS fix
FROM {our_roles} AS wanted
WHERE wanted.short = 'owner'
    AND NOT EXISTS (
        SELECT FROM pg_default_acl
        WHERE pg_get_userbyid(defaclrole) = wanted.name AND defaclobjtype = 'f'
            AND defaclnamespace = 0
            AND NOT EXISTS (SELECT FROM aclexplode(defaclacl) WHERE grantee = 0)
    )
UNION ALL
SELECT
    format('%s gets privileges on new %s of %s', coalesce(rolname, 'PUBLIC'), kind, wanted.name),
    format(
        'ALTER DEFAULT PRIVILEGES FOR ROLE %I%s REVOKE ALL ON %s FROM %s', wanted.name,
        ' IN SCHEMA ' || quote_ident(nspname), kind, coalesce(quote_ident(rolname), 'PUBLIC')
    )
FROM {our_roles} AS wanted
JOIN pg_default_acl ON pg_get_userbyid(defaclrole) = wanted.name
CROSS JOIN aclexplode(defaclacl) AS given
CROSS JOIN LATERAL (
    SELECT CASE defaclobjtype
        WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'FUNCTIONS'
        WHEN 'T' THEN 'TYPES' WHEN 'n' THEN 'SCHEMAS'
    END AS kind
) AS kinds
LEFT JOIN pg_namespace ON pg_namespace.oid = defaclnamespace
LEFT JOIN pg_roles ON pg_roles.oid = given.grantee
WHERE wanted.short = 'owner' AND given.grantee <> defaclrole
    AND (defaclnamespace = 0 OR nspname = 'holdfast')
    AND NOT (given.grantee = 0 AND defaclobjtype IN ('f', 'T') AND defaclnamespace = 0)
GROUP BY rolname, kind, wanted.name, nspname

-- name: row_security_differences
SELECT
    format('row-level security on holdfast.%s is not %s', relname, what) AS difference,
    format('ALTER TABLE holdfast.%I %s ROW LEVEL SECURITY', relname, verb) AS fix
FROM {decided_tables} AS decided
JOIN pg_class ON relnamespace = 'holdfast'::regnamespace AND relname = decided.name
CROSS JOIN LATERAL (
    VALUES ('enabled', 'ENABLE', relrowsecurity), ('forced', 'FORCE', relforcerowsecurity)
) AS state (what, verb, is_so)
WHERE decided.has_policies AND NOT is_so
ORDER BY relname, what

-- name: policy_differences
-- A policy's comment holds two hashes: of what it was made from, and of what the server made of it,
-- because the server rewrites expressions.
WITH wanted AS (
    SELECT
        decided.name AS table_name,
        ours.short AS policy,
        ours.name AS role,
        NULL AS kind,
        coalesce(nullif(concat_ws(
            ' AND ',
            CASE
                WHEN decided.tenant IS NULL THEN NULL
                WHEN ours.short = 'api' THEN format(
                    '((SELECT current_setting(''holdfast.across'', true)) = ''on'''
                    ' OR %s = (SELECT nullif(current_setting(''holdfast.tenant'', true), '''')))',
                    decided.tenant
                )
                -- For the functions of the owner: in a tenant's transaction, they stay with it.
                WHEN ours.short = 'owner' THEN format(
                    '((SELECT nullif(current_setting(''holdfast.tenant'', true), '''')) IS NULL'
                    ' OR %s = (SELECT current_setting(''holdfast.tenant'', true)))',
                    decided.tenant
                )
            END,
            '(' || (decided.rows ->> ours.short) || ')'
        ), ''), 'true') AS rule
    FROM {decided_tables} AS decided
    CROSS JOIN {our_roles} AS ours
    WHERE decided.has_policies AND to_regclass(format('holdfast.%I', decided.name)) IS NOT NULL
        AND (
            ours.short = 'owner'
            OR EXISTS (
                SELECT FROM {decided_grants} AS granted
                WHERE granted.kind = 'table' AND granted.object = decided.name
                    AND granted.role = ours.short
            )
        )
    UNION ALL
    -- What a role updates in some rows only, functions of the owner update and delete for it there
    -- only.
    SELECT
        decided.name,
        'owner_' || lower(command) || 's',
        owner.name,
        'AS RESTRICTIVE FOR ' || command,
        format('CASE (SELECT session_user) %s ELSE true END', string_agg(
            format('WHEN %L THEN (%s)', ours.name, decided.rows ->> ours.short), ' '
            ORDER BY ours.name
        ))
    FROM {decided_tables} AS decided
    JOIN {our_roles} AS owner ON owner.short = 'owner'
    JOIN {our_roles} AS ours ON decided.rows ? ours.short
    CROSS JOIN (VALUES ('UPDATE'), ('DELETE')) AS commands (command)
    WHERE to_regclass(format('holdfast.%I', decided.name)) IS NOT NULL
        AND EXISTS (
            SELECT FROM {decided_grants} AS granted
            WHERE granted.kind = 'table' AND granted.object = decided.name
                AND granted.role = ours.short AND granted.privilege = 'UPDATE'
        )
    GROUP BY decided.name, owner.name, command
),
found AS (
    SELECT
        relname AS table_name,
        polname AS policy,
        split_part(obj_description(pg_policy.oid, 'pg_policy'), ' ', 1) AS source_hash,
        split_part(obj_description(pg_policy.oid, 'pg_policy'), ' ', 2) AS hash,
        {policy_hash} AS actual_hash
    FROM pg_policy
    JOIN pg_class ON pg_class.oid = polrelid
    WHERE relnamespace = 'holdfast'::regnamespace
)
SELECT
    format(
        CASE
            WHEN wanted.policy IS NULL THEN 'policy %s on holdfast.%s should not exist'
            WHEN found.policy IS NULL THEN 'policy %s on holdfast.%s does not exist'
            ELSE 'policy %s on holdfast.%s has been changed'
        END,
        coalesce(wanted.policy, found.policy), table_name
    ) AS difference,
    concat_ws(
        '; ',
        CASE WHEN found.policy IS NOT NULL THEN
            format('DROP POLICY %I ON holdfast.%I', found.policy, table_name)
        END,
        CASE WHEN wanted.policy IS NOT NULL THEN
            format(
                'CREATE POLICY %I ON holdfast.%I %s TO %I USING (%s)',
                wanted.policy, table_name, kind, role, rule
            )
            || format(
                '; COMMENT ON POLICY %I ON holdfast.%I IS %L',
                wanted.policy, table_name, md5(concat_ws(' ', kind, role, rule))
            )
        END
    ) AS fix
FROM wanted
FULL JOIN found USING (table_name, policy)
WHERE found.policy IS NULL OR wanted.policy IS NULL
    OR source_hash IS DISTINCT FROM md5(concat_ws(' ', kind, role, rule))
    OR hash IS DISTINCT FROM actual_hash
ORDER BY table_name, coalesce(wanted.policy, found.policy)

-- name: unsealed_policies
SELECT format(
    'COMMENT ON POLICY %I ON holdfast.%I IS %L',
    polname, relname, obj_description(pg_policy.oid, 'pg_policy') || ' ' || {policy_hash}
) AS fix
FROM pg_policy
JOIN pg_class ON pg_class.oid = polrelid
WHERE relnamespace = 'holdfast'::regnamespace
    AND obj_description(pg_policy.oid, 'pg_policy') ~ '^[0-9a-f]{32}$'

-- name: view_differences
SELECT
    format('view holdfast.%s does not run as its caller', relname) AS difference,
    CASE WHEN current_setting('server_version_num')::integer >= 150000 THEN
        format('ALTER VIEW holdfast.%I SET (security_invoker = true)', relname)
    END AS fix
FROM pg_class
WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'v'
    AND NOT coalesce(reloptions, '{}') && ARRAY['security_invoker=true', 'security_invoker=on']
    AND current_setting('server_version_num')::integer >= 150000
ORDER BY relname

-- name: function_differences
SELECT
    format('function %s %s', pg_proc.oid::regprocedure, fault.text) AS difference,
    format('ALTER ROUTINE %s %s', pg_proc.oid::regprocedure, fault.fix) AS fix
FROM pg_proc
JOIN {decided_functions} AS decided ON decided.name = proname
CROSS JOIN LATERAL (
    VALUES
        (
            prosecdef AND NOT decided.definer,
            'must not be SECURITY DEFINER',
            'SECURITY INVOKER'
        ),
        (
            decided.definer AND NOT prosecdef,
            'is not SECURITY DEFINER',
            'SECURITY DEFINER'
        ),
        (
            decided.definer AND NOT coalesce(
                'search_path=pg_catalog, pg_temp' = ANY (proconfig), false
            ),
            'is SECURITY DEFINER without a pinned search_path',
            'SET search_path = pg_catalog, pg_temp'
        )
) AS fault (is_so, text, fix)
WHERE pronamespace = 'holdfast'::regnamespace AND fault.is_so
ORDER BY 1

-- name: privilege_differences
WITH grantees AS (
    SELECT short, role.oid, name, quote_ident(name) AS quoted
    FROM {our_roles} AS ours
    JOIN pg_roles AS role ON role.rolname = ours.name
    WHERE short <> 'owner'
    UNION ALL
    SELECT 'caller', role.oid, rolname, quote_ident(rolname)
    FROM pg_roles AS role WHERE rolname = ANY (:callers::text[])
    UNION ALL
    SELECT 'former', role.oid, rolname, quote_ident(rolname)
    FROM pg_roles AS role WHERE rolname = ANY (:former_callers::text[])
    UNION ALL
    SELECT 'public', 0, 'PUBLIC', 'PUBLIC'
),
objects AS (
    SELECT
        CASE WHEN relkind IN ('v', 'm') THEN 'view' WHEN relkind = 'S' THEN 'sequence'
            ELSE 'table' END AS kind,
        relname::text AS object,
        CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || format('holdfast.%I', relname) AS shown,
        coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))
            AS acl,
        oid AS relation
    FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
    UNION ALL
    SELECT 'function', proname::text, 'ROUTINE ' || oid::regprocedure::text,
        coalesce(proacl, acldefault('f', proowner)), NULL
    FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
    UNION ALL
    SELECT 'schema', 'holdfast', 'SCHEMA holdfast', coalesce(nspacl, acldefault('n', nspowner)),
        NULL
    FROM pg_namespace WHERE nspname = 'holdfast'
),
found AS (
    SELECT kind, object, shown, NULL::text AS "column", grantee, privilege_type AS privilege,
        is_grantable
    FROM objects CROSS JOIN aclexplode(acl)
    UNION ALL
    SELECT kind, object, shown, attname::text, grantee, privilege_type, is_grantable
    FROM objects
    JOIN pg_attribute ON attrelid = relation AND attnum > 0 AND NOT attisdropped
    CROSS JOIN aclexplode(attacl)
),
wanted AS (
    SELECT kind, object, shown, "column", grantees.oid AS grantee, privilege
    FROM {decided_grants} AS decided
    JOIN objects USING (kind, object)
    JOIN grantees ON short = role
    -- Before version 15, a view runs as its owner, and would show all rows.
    WHERE (kind <> 'view' OR current_setting('server_version_num')::integer >= 150000)
        AND (privilege <> 'MAINTAIN' OR current_setting('server_version_num')::integer >= 170000)
    UNION
    SELECT 'schema', 'holdfast', 'SCHEMA holdfast', NULL, oid, 'USAGE'
    FROM grantees
    WHERE short NOT IN ('public', 'former') AND EXISTS (SELECT FROM {decided_grants} AS decided)
    UNION
    -- Whoever inserts takes the next number. An identity column needs no privilege for that.
    SELECT sequence.kind, sequence.object, sequence.shown, NULL, grantees.oid, 'USAGE'
    FROM objects AS sequence
    JOIN pg_depend ON classid = 'pg_class'::regclass AND objid = sequence.relation
        AND deptype = 'a'
    JOIN pg_class AS of_table ON of_table.oid = refobjid
    JOIN {decided_grants} AS decided
        ON decided.kind = 'table' AND decided.object = of_table.relname
        AND decided.privilege = 'INSERT'
    JOIN grantees ON short = decided.role
    WHERE sequence.kind = 'sequence'
),
compared AS (
    SELECT
        coalesce(wanted.shown, found.shown) AS shown,
        coalesce(wanted."column", found."column") AS "column",
        coalesce(wanted.privilege, found.privilege) AS privilege,
        coalesce(wanted.grantee, found.grantee) AS grantee,
        wanted.grantee IS NOT NULL AS is_wanted,
        coalesce(found.is_grantable, false) AS is_grantable
    FROM wanted
    FULL JOIN found
        ON wanted.shown = found.shown AND wanted.privilege = found.privilege
        AND wanted.grantee = found.grantee
        AND wanted."column" IS NOT DISTINCT FROM found."column"
    WHERE wanted.grantee IS NULL OR found.grantee IS NULL OR found.is_grantable
)
SELECT
    format(
        '%s %s %s on %s', name,
        CASE
            WHEN NOT is_wanted THEN 'must not have'
            WHEN is_grantable THEN 'must not have GRANT OPTION for'
            ELSE 'lacks'
        END,
        privilege || coalesce(' (' || "column" || ')', ''), shown
    ) AS difference,
    format(
        CASE
            WHEN NOT is_wanted THEN 'REVOKE %s ON %s FROM %s'
            WHEN is_grantable THEN 'REVOKE GRANT OPTION FOR %s ON %s FROM %s'
            ELSE 'GRANT %s ON %s TO %s'
        END,
        privilege || coalesce(' (' || quote_ident("column") || ')', ''), shown, quoted
    ) AS fix
FROM compared
JOIN grantees ON grantees.oid = grantee
ORDER BY shown, name, privilege, "column"

-- name: undecided_objects
SELECT format('%s %s has no decision', kind, shown) AS difference, NULL::text AS fix
FROM (
    SELECT
        CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' ELSE 'table' END AS kind,
        format('holdfast.%I', relname) AS shown,
        relname AS name
    FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
        AND NOT relispartition
    UNION
    SELECT 'function', oid::regprocedure::text, proname
    FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
) AS object
WHERE NOT EXISTS (
    SELECT FROM {decided_tables} AS decided WHERE kind = 'table' AND decided.name = object.name
    UNION ALL
    SELECT FROM {decided_functions} AS decided
    WHERE kind = 'function' AND decided.name = object.name
    UNION ALL
    SELECT FROM jsonb_array_elements_text(:decisions::text::jsonb -> 'views') AS decided (name)
    WHERE kind = 'view' AND decided.name = object.name
)
ORDER BY 1
