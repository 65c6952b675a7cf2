-- A key is stored as a hash under a pepper. `pepper` is that pepper's fingerprint.
CREATE TABLE holdfast.api_keys (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    tenant text COLLATE "C", -- NULL: sees all tenants
    scopes text NOT NULL CHECK (scopes <> ''), -- separated by spaces
    hash bytea NOT NULL,
    pepper text NOT NULL,
    requests_per_second double precision,
    created_at timestamptz NOT NULL,
    created_by text,
    expires_at timestamptz,
    revoked_at timestamptz,
    replaced_by text COLLATE "C" REFERENCES holdfast.api_keys,
    CHECK (tenant IS NULL OR position('admin' IN scopes) = 0)
);

-- The pepper of a database in development, where no setting has one. It is made once.
CREATE TABLE holdfast.development_pepper (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    pepper text NOT NULL
);

CREATE TABLE holdfast.audit_log (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    key_id text COLLATE "C",
    tenant text COLLATE "C",
    action text COLLATE "C" NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('allowed', 'denied', 'failed')),
    target text,
    jobs bigint NOT NULL,
    address text,
    correlation_id text,
    because text
);
CREATE INDEX audit_log_key ON holdfast.audit_log (key_id, id);
CREATE INDEX audit_log_action ON holdfast.audit_log (action, id);
CREATE INDEX audit_log_target ON holdfast.audit_log (target, id);

CREATE FUNCTION holdfast.audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log: what was recorded never changes' USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER audit_log_stays BEFORE UPDATE OR DELETE ON holdfast.audit_log FOR EACH ROW
EXECUTE FUNCTION holdfast.audit_log_refuse();

CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON holdfast.audit_log
EXECUTE FUNCTION holdfast.audit_log_refuse();
