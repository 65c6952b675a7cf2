-- Finds a key, and tells whether this is its hash, without showing the hash.
CREATE FUNCTION holdfast.check_key(
    wanted text, given bytea,
    OUT id text, OUT name text, OUT tenant text, OUT scopes text,
    OUT requests_per_second double precision, OUT created_at timestamptz, OUT created_by text,
    OUT expires_at timestamptz, OUT revoked_at timestamptz, OUT replaced_by text, OUT pepper text,
    OUT is_right boolean
) RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT
        key.id, key.name, key.tenant, key.scopes, key.requests_per_second, key.created_at,
        key.created_by, key.expires_at, key.revoked_at, key.replaced_by, key.pepper,
        key.hash = given
    FROM holdfast.api_keys AS key WHERE key.id = wanted
$$;
REVOKE EXECUTE ON FUNCTION holdfast.check_key(text, bytea) FROM PUBLIC;
