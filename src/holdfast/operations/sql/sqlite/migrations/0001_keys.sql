-- A key is stored as a hash under a pepper. `pepper` is that pepper's fingerprint.
CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    tenant TEXT, -- NULL: sees all tenants
    scopes TEXT NOT NULL CHECK (scopes <> ''), -- separated by spaces
    hash BLOB NOT NULL,
    pepper TEXT NOT NULL,
    requests_per_second REAL,
    created_at TEXT NOT NULL,
    created_by TEXT,
    expires_at TEXT,
    revoked_at TEXT,
    replaced_by TEXT REFERENCES api_keys,
    CHECK (tenant IS NULL OR instr(scopes, 'admin') = 0)
) STRICT;

CREATE TABLE audit_log (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    key_id TEXT,
    tenant TEXT,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('allowed', 'denied', 'failed')),
    target TEXT,
    jobs INTEGER NOT NULL,
    address TEXT,
    correlation_id TEXT,
    because TEXT
) STRICT;

CREATE INDEX audit_log_key ON audit_log (key_id, id);
CREATE INDEX audit_log_action ON audit_log (action, id);
CREATE INDEX audit_log_target ON audit_log (target, id);

CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log: what was recorded never changes');
END;

CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log: what was recorded never changes');
END;

-- INSERT OR REPLACE deletes without a trigger.
CREATE TRIGGER audit_log_is_not_replaced BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = new.id)
BEGIN
    SELECT RAISE(ABORT, 'audit_log: what was recorded never changes');
END;
