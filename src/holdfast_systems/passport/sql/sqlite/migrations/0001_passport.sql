-- Every row belongs to a tenant and refers only to rows of that tenant.

CREATE TABLE passport_document_versions (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    content BLOB NOT NULL,
    content_hash TEXT NOT NULL CHECK (length(content_hash) = 64),
    created_at TEXT NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, name, schema_version, content_hash)
) STRICT;

CREATE TABLE passport_facts (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    fact_type TEXT NOT NULL,
    fact_key TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    payload_hash TEXT NOT NULL CHECK (length(payload_hash) = 64),
    created_at TEXT NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, fact_type, fact_key, schema_version, payload_hash)
) STRICT;

CREATE TABLE passport_fact_documents (
    tenant TEXT NOT NULL,
    fact_id TEXT NOT NULL,
    document_version_id TEXT NOT NULL,
    PRIMARY KEY (tenant, fact_id, document_version_id),
    FOREIGN KEY (tenant, fact_id) REFERENCES passport_facts (tenant, id),
    FOREIGN KEY (tenant, document_version_id) REFERENCES passport_document_versions (tenant, id)
) STRICT;

CREATE TABLE passport_snapshots (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('OPEN', 'SEALED')),
    ordered TEXT CHECK (ordered IS NULL OR json_valid(ordered)), -- to compile when it is sealed
    created_at TEXT NOT NULL,
    sealed_at TEXT,
    UNIQUE (tenant, id),
    CHECK ((status = 'SEALED') = (sealed_at IS NOT NULL))
) STRICT;

CREATE TABLE passport_snapshot_documents (
    tenant TEXT NOT NULL,
    snapshot_id TEXT NOT NULL,
    document_version_id TEXT NOT NULL,
    parsed_at TEXT,
    PRIMARY KEY (tenant, snapshot_id, document_version_id),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, document_version_id) REFERENCES passport_document_versions (tenant, id)
) STRICT;

-- One fact for each type and key: of two, nobody could say which one counts.
CREATE TABLE passport_snapshot_facts (
    tenant TEXT NOT NULL,
    snapshot_id TEXT NOT NULL,
    fact_type TEXT NOT NULL,
    fact_key TEXT NOT NULL,
    fact_id TEXT NOT NULL,
    PRIMARY KEY (tenant, snapshot_id, fact_type, fact_key),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, fact_id) REFERENCES passport_facts (tenant, id)
) STRICT;

CREATE TABLE passport_rules (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('DRAFT', 'PUBLISHED')),
    source TEXT NOT NULL CHECK (json_valid(source)),
    source_hash TEXT NOT NULL CHECK (length(source_hash) = 64),
    created_at TEXT NOT NULL,
    published_at TEXT,
    UNIQUE (tenant, id),
    UNIQUE (tenant, source_hash),
    CHECK ((status = 'PUBLISHED') = (published_at IS NOT NULL))
) STRICT;

CREATE TABLE passport_versions (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    passport_id TEXT NOT NULL,
    snapshot_id TEXT NOT NULL,
    rules_id TEXT NOT NULL,
    build_id TEXT NOT NULL,
    issued_at TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    payload_hash TEXT NOT NULL CHECK (length(payload_hash) = 64),
    proof_root TEXT NOT NULL CHECK (length(proof_root) = 64),
    receipt TEXT NOT NULL CHECK (json_valid(receipt)),
    receipt_hash TEXT NOT NULL CHECK (length(receipt_hash) = 64),
    key_id TEXT,
    signature BLOB CHECK (length(signature) = 64),
    signed_at TEXT,
    qr_text TEXT,
    qr_png BLOB,
    created_at TEXT NOT NULL,
    UNIQUE (tenant, id),
    UNIQUE (tenant, passport_id, snapshot_id, rules_id, build_id),
    FOREIGN KEY (tenant, snapshot_id) REFERENCES passport_snapshots (tenant, id),
    FOREIGN KEY (tenant, rules_id) REFERENCES passport_rules (tenant, id),
    CHECK (
        (key_id IS NULL) = (signature IS NULL) AND (key_id IS NULL) = (signed_at IS NULL)
    ),
    CHECK ((qr_text IS NULL) = (qr_png IS NULL)),
    CHECK (qr_png IS NULL OR signature IS NOT NULL)
) STRICT;

CREATE TABLE passport_audit_events (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    event_type TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    job_id TEXT,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    occurred_at TEXT NOT NULL
) STRICT;

CREATE INDEX passport_audit_of_aggregate
    ON passport_audit_events (tenant, aggregate_id, occurred_at);

CREATE TRIGGER passport_facts_stay BEFORE UPDATE ON passport_facts
BEGIN SELECT RAISE(ABORT, 'a fact never changes'); END;

CREATE TRIGGER passport_facts_remain BEFORE DELETE ON passport_facts
BEGIN SELECT RAISE(ABORT, 'a fact never changes'); END;

CREATE TRIGGER passport_audit_stays BEFORE UPDATE ON passport_audit_events
BEGIN SELECT RAISE(ABORT, 'audit events are only appended'); END;

CREATE TRIGGER passport_audit_remains BEFORE DELETE ON passport_audit_events
BEGIN SELECT RAISE(ABORT, 'audit events are only appended'); END;

CREATE TRIGGER passport_snapshots_stay BEFORE UPDATE ON passport_snapshots
WHEN old.status = 'SEALED'
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshots_remain BEFORE DELETE ON passport_snapshots
WHEN old.status = 'SEALED'
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_rules_stay BEFORE UPDATE ON passport_rules
WHEN old.status = 'PUBLISHED'
BEGIN SELECT RAISE(ABORT, 'published rules never change'); END;

CREATE TRIGGER passport_rules_remain BEFORE DELETE ON passport_rules
WHEN old.status = 'PUBLISHED'
BEGIN SELECT RAISE(ABORT, 'published rules never change'); END;

CREATE TRIGGER passport_snapshot_facts_added BEFORE INSERT ON passport_snapshot_facts
WHEN NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = new.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_facts_changed BEFORE UPDATE ON passport_snapshot_facts
WHEN new.snapshot_id <> old.snapshot_id
    OR NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = old.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes, and rows stay in theirs'); END;

CREATE TRIGGER passport_snapshot_facts_removed BEFORE DELETE ON passport_snapshot_facts
WHEN NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = old.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_documents_added BEFORE INSERT ON passport_snapshot_documents
WHEN NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = new.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_documents_changed BEFORE UPDATE ON passport_snapshot_documents
WHEN new.snapshot_id <> old.snapshot_id
    OR NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = old.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes, and rows stay in theirs'); END;

CREATE TRIGGER passport_snapshot_documents_removed BEFORE DELETE ON passport_snapshot_documents
WHEN NOT EXISTS (SELECT 1 FROM passport_snapshots WHERE id = old.snapshot_id AND status = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

-- A compiled version stays as it is. The signature and the QR code are written once.
CREATE TRIGGER passport_versions_stay BEFORE UPDATE ON passport_versions
WHEN
    (old.id, old.tenant, old.passport_id, old.snapshot_id, old.rules_id, old.build_id,
     old.issued_at, old.payload, old.payload_hash, old.proof_root, old.receipt, old.receipt_hash,
     old.created_at)
    IS NOT
    (new.id, new.tenant, new.passport_id, new.snapshot_id, new.rules_id, new.build_id,
     new.issued_at, new.payload, new.payload_hash, new.proof_root, new.receipt, new.receipt_hash,
     new.created_at)
    OR (
        old.signature IS NOT NULL
        AND (old.signature, old.key_id, old.signed_at)
        IS NOT (new.signature, new.key_id, new.signed_at)
    )
    OR (
        old.qr_png IS NOT NULL
        AND (old.qr_text, old.qr_png) IS NOT (new.qr_text, new.qr_png)
    )
BEGIN SELECT RAISE(ABORT, 'a passport version never changes'); END;

CREATE TRIGGER passport_versions_remain BEFORE DELETE ON passport_versions
BEGIN SELECT RAISE(ABORT, 'a passport version is never deleted'); END;

-- The jobs in this system's terms.
CREATE VIEW passport_jobs AS
SELECT
    id AS job_id,
    tenant AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    json_extract(arguments, '$.payload') AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    strftime('%Y-%m-%dT%H:%M:%S', run_at / 1000000, 'unixepoch')
        || printf('.%06dZ', run_at % 1000000) AS scheduled_at,
    lease_owner,
    strftime('%Y-%m-%dT%H:%M:%S', lease_expires_at / 1000000, 'unixepoch')
        || printf('.%06dZ', lease_expires_at % 1000000) AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch')
        || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_object(
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
    FROM jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK'
);
