-- From now on, functions that delete run as the schema's owner: no role needs the DELETE privilege.

-- api_requests

CREATE FUNCTION holdfast.free_request(freed_scope text, freed_key text, freed_token text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM holdfast.api_requests
    WHERE scope = freed_scope AND key = freed_key AND token = freed_token AND status IS NULL;
END
$$;

CREATE FUNCTION holdfast.delete_expired_requests(rows_max bigint) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.api_requests
    WHERE (scope, key) IN (
        SELECT scope, key FROM holdfast.api_requests WHERE expires_at <= now()
        ORDER BY expires_at LIMIT rows_max
    )
    RETURNING key;
END
$$;

-- bulk_changes and bulk_jobs: only expired rows are deleted.

CREATE FUNCTION holdfast.delete_bulk_jobs(change uuid, rows_max bigint) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.bulk_jobs
    WHERE change_id = change AND position IN (
        SELECT position FROM holdfast.bulk_jobs
        WHERE change_id = change ORDER BY position LIMIT rows_max
    ) AND EXISTS (SELECT FROM holdfast.bulk_changes WHERE id = change AND state = 'expired')
    RETURNING job_id;
END
$$;

CREATE FUNCTION holdfast.delete_bulk_change(change uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM holdfast.bulk_changes WHERE id = change AND state = 'expired';
END
$$;

REVOKE EXECUTE ON FUNCTION
    holdfast.free_request, holdfast.delete_expired_requests, holdfast.delete_bulk_jobs,
    holdfast.delete_bulk_change
FROM PUBLIC;

-- Roles that may delete rows of these tables may call the functions that do.
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT
            needed.functions,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role,
            CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS option
        FROM (
            VALUES
            (
                'holdfast.api_requests'::regclass,
                'holdfast.free_request, holdfast.delete_expired_requests'
            ),
            (
                'holdfast.bulk_changes'::regclass,
                'holdfast.delete_bulk_jobs, holdfast.delete_bulk_change'
            )
        ) AS needed (relation, functions)
        JOIN pg_class AS known ON known.oid = needed.relation
        CROSS JOIN aclexplode(coalesce(known.relacl, acldefault('r', known.relowner)))
        WHERE privilege_type = 'DELETE' AND grantee <> known.relowner
    LOOP
        EXECUTE format(
            'GRANT EXECUTE ON FUNCTION %s TO %s %s',
            allowed.functions, allowed.role, allowed.option
        );
    END LOOP;
END
$$;

-- The database sets the time of an entry and its ID, a UUIDv7 of that time: nobody can backdate an
-- entry, and sorting by ID sorts by time.
CREATE FUNCTION holdfast.audit_log_stamp() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    microseconds bigint := extract(epoch FROM moment) * 1000000;
BEGIN
    NEW.at := moment;
    -- 48 bits of milliseconds, the version (7), and 12 bits of what remains of the microseconds.
    NEW.id := encode(
        int8send(
            (microseconds / 1000 << 16) | x'7000'::bigint | (microseconds % 1000 * 4096 / 1000)
        ) || substring(uuid_send(gen_random_uuid()) FROM 9),
        'hex'
    )::uuid;
    RETURN NEW;
END
$$;

CREATE TRIGGER audit_log_is_stamped BEFORE INSERT ON holdfast.audit_log FOR EACH ROW
EXECUTE FUNCTION holdfast.audit_log_stamp();

-- Also for a session that turns off ordinary triggers with session_replication_role.
ALTER TABLE holdfast.audit_log ENABLE ALWAYS TRIGGER audit_log_stays;
ALTER TABLE holdfast.audit_log ENABLE ALWAYS TRIGGER audit_log_is_not_truncated;
ALTER FUNCTION holdfast.audit_log_refuse() SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION holdfast.audit_log_refuse(), holdfast.audit_log_stamp() FROM PUBLIC;

ALTER TABLE holdfast.audit_log
    ADD CHECK (actor <> ''),
    ADD CHECK (action <> ''),
    ADD CHECK (jobs >= 0);
