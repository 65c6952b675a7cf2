-- Every row belongs to a tenant and refers only to rows of that tenant.

CREATE FUNCTION holdfast.passport_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE TABLE holdfast.passport_document_versions (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    name text NOT NULL,
    schema_version text NOT NULL,
    content bytea NOT NULL,
    content_hash text NOT NULL CHECK (length(content_hash) = 64),
    created_at timestamptz NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, name, schema_version, content_hash)
);

CREATE TABLE holdfast.passport_facts (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    fact_type text NOT NULL,
    fact_key text NOT NULL,
    schema_version text NOT NULL,
    payload text NOT NULL CHECK (payload::json IS NOT NULL),
    payload_hash text NOT NULL CHECK (length(payload_hash) = 64),
    created_at timestamptz NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, fact_type, fact_key, schema_version, payload_hash)
);

CREATE TABLE holdfast.passport_fact_documents (
    tenant text NOT NULL,
    fact_id uuid NOT NULL,
    document_version_id uuid NOT NULL,
    PRIMARY KEY (tenant, fact_id, document_version_id),
    FOREIGN KEY (tenant, fact_id) REFERENCES holdfast.passport_facts (tenant, id),
    FOREIGN KEY (tenant, document_version_id)
        REFERENCES holdfast.passport_document_versions (tenant, id)
);

CREATE TABLE holdfast.passport_snapshots (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    status text NOT NULL CHECK (status IN ('OPEN', 'SEALED')),
    ordered text CHECK (ordered IS NULL OR ordered::json IS NOT NULL), -- to compile when it is sealed
    created_at timestamptz NOT NULL,
    sealed_at timestamptz,
    UNIQUE (tenant, id),
    CHECK ((status = 'SEALED') = (sealed_at IS NOT NULL))
);

CREATE TABLE holdfast.passport_snapshot_documents (
    tenant text NOT NULL,
    snapshot_id uuid NOT NULL,
    document_version_id uuid NOT NULL,
    parsed_at timestamptz,
    PRIMARY KEY (tenant, snapshot_id, document_version_id),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, document_version_id)
        REFERENCES holdfast.passport_document_versions (tenant, id)
);

-- One fact for each type and key: of two, nobody could say which one counts.
CREATE TABLE holdfast.passport_snapshot_facts (
    tenant text NOT NULL,
    snapshot_id uuid NOT NULL,
    fact_type text NOT NULL,
    fact_key text NOT NULL,
    fact_id uuid NOT NULL,
    PRIMARY KEY (tenant, snapshot_id, fact_type, fact_key),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, fact_id) REFERENCES holdfast.passport_facts (tenant, id)
);

CREATE TABLE holdfast.passport_rules (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    name text NOT NULL,
    status text NOT NULL CHECK (status IN ('DRAFT', 'PUBLISHED')),
    source text NOT NULL CHECK (source::json IS NOT NULL),
    source_hash text NOT NULL CHECK (length(source_hash) = 64),
    created_at timestamptz NOT NULL,
    published_at timestamptz,
    UNIQUE (tenant, id),
    UNIQUE (tenant, source_hash),
    CHECK ((status = 'PUBLISHED') = (published_at IS NOT NULL))
);

CREATE TABLE holdfast.passport_versions (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    passport_id uuid NOT NULL,
    snapshot_id uuid NOT NULL,
    rules_id uuid NOT NULL,
    build_id text NOT NULL,
    issued_at timestamptz NOT NULL,
    payload text NOT NULL CHECK (payload::json IS NOT NULL),
    payload_hash text NOT NULL CHECK (length(payload_hash) = 64),
    proof_root text NOT NULL CHECK (length(proof_root) = 64),
    receipt text NOT NULL CHECK (receipt::json IS NOT NULL),
    receipt_hash text NOT NULL CHECK (length(receipt_hash) = 64),
    key_id text,
    signature bytea CHECK (length(signature) = 64),
    signed_at timestamptz,
    qr_text text,
    qr_png bytea,
    created_at timestamptz NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, passport_id, snapshot_id, rules_id, build_id),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, rules_id) REFERENCES holdfast.passport_rules (tenant, id),
    CHECK (num_nonnulls(key_id, signature, signed_at) IN (0, 3)),
    CHECK ((qr_text IS NULL) = (qr_png IS NULL)),
    CHECK (qr_png IS NULL OR signature IS NOT NULL)
);

CREATE TABLE holdfast.passport_audit_events (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    event_type text NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id uuid NOT NULL,
    job_id uuid,
    payload text NOT NULL CHECK (payload::json IS NOT NULL),
    occurred_at timestamptz NOT NULL
);

CREATE INDEX passport_audit_of_aggregate
    ON holdfast.passport_audit_events (tenant, aggregate_id, occurred_at);

CREATE TRIGGER passport_facts_stay BEFORE UPDATE OR DELETE ON holdfast.passport_facts
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_refuse('a fact never changes');

CREATE TRIGGER passport_audit_stays BEFORE UPDATE OR DELETE ON holdfast.passport_audit_events
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_refuse('audit events are only appended');

CREATE TRIGGER passport_snapshots_stay BEFORE UPDATE OR DELETE ON holdfast.passport_snapshots
FOR EACH ROW WHEN (old.status = 'SEALED')
EXECUTE FUNCTION holdfast.passport_refuse('a sealed snapshot never changes');

CREATE TRIGGER passport_rules_stay BEFORE UPDATE OR DELETE ON holdfast.passport_rules
FOR EACH ROW WHEN (old.status = 'PUBLISHED')
EXECUTE FUNCTION holdfast.passport_refuse('published rules never change');

CREATE FUNCTION holdfast.passport_check_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Locked, so that nobody seals it at the same time.
    PERFORM FROM holdfast.passport_snapshots
    WHERE id = (CASE TG_OP WHEN 'INSERT' THEN new.snapshot_id ELSE old.snapshot_id END)
        AND status = 'OPEN' FOR SHARE;
    IF NOT FOUND OR (TG_OP = 'UPDATE' AND new.snapshot_id <> old.snapshot_id) THEN
        RAISE EXCEPTION 'a sealed snapshot never changes, and rows stay in theirs'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN coalesce(new, old);
END
$$;

CREATE TRIGGER passport_snapshot_facts_stay
BEFORE INSERT OR UPDATE OR DELETE ON holdfast.passport_snapshot_facts
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_check_open();

CREATE TRIGGER passport_snapshot_documents_stay
BEFORE INSERT OR UPDATE OR DELETE ON holdfast.passport_snapshot_documents
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_check_open();

-- A compiled version stays as it is. The signature and the QR code are written once.
CREATE TRIGGER passport_versions_stay BEFORE UPDATE ON holdfast.passport_versions
FOR EACH ROW WHEN (
    (old.id, old.tenant, old.passport_id, old.snapshot_id, old.rules_id, old.build_id,
     old.issued_at, old.payload, old.payload_hash, old.proof_root, old.receipt, old.receipt_hash,
     old.created_at)
    IS DISTINCT FROM
    (new.id, new.tenant, new.passport_id, new.snapshot_id, new.rules_id, new.build_id,
     new.issued_at, new.payload, new.payload_hash, new.proof_root, new.receipt, new.receipt_hash,
     new.created_at)
    OR (
        old.signature IS NOT NULL
        AND (old.signature, old.key_id, old.signed_at)
        IS DISTINCT FROM (new.signature, new.key_id, new.signed_at)
    )
    OR (
        old.qr_png IS NOT NULL
        AND (old.qr_text, old.qr_png) IS DISTINCT FROM (new.qr_text, new.qr_png)
    )
)
EXECUTE FUNCTION holdfast.passport_refuse('a passport version never changes');

CREATE TRIGGER passport_versions_remain BEFORE DELETE ON holdfast.passport_versions
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_refuse('a passport version is never deleted');

-- The jobs in this system's terms.
CREATE VIEW holdfast.passport_jobs AS
SELECT
    id AS job_id,
    tenant AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    arguments -> 'payload' AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    run_at AS scheduled_at,
    lease_owner,
    lease_expires_at,
    started_at,
    finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_build_object(
        'code',
        CASE error_code
            WHEN 'BAD_ARGUMENTS' THEN 'VALIDATION_ERROR'
            WHEN 'StoreUnavailable' THEN 'DB_UNAVAILABLE'
            ELSE error_code
        END,
        'text', error_text
    ) END AS last_error
FROM (
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        lease_owner, lease_expires_at, started_at, finished_at, error_code, error_text
    FROM holdfast.jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM holdfast.history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK'
);
