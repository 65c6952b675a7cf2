-- Without a rowid: INSERT OR REPLACE of the same rowid would delete an entry without a trigger.
CREATE TABLE audit_log_without_rowid (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    at TEXT NOT NULL,
    actor TEXT NOT NULL CHECK (actor <> ''),
    key_id TEXT,
    tenant TEXT,
    action TEXT NOT NULL CHECK (action <> ''),
    outcome TEXT NOT NULL CHECK (outcome IN ('allowed', 'denied', 'failed')),
    target TEXT,
    jobs INTEGER NOT NULL CHECK (jobs >= 0),
    address TEXT,
    correlation_id TEXT,
    because TEXT
) STRICT, WITHOUT ROWID;

INSERT INTO audit_log_without_rowid
SELECT
    id, at, actor, key_id, tenant, action, outcome, target, jobs, address, correlation_id, because
FROM audit_log;

DROP TABLE audit_log;

ALTER TABLE audit_log_without_rowid RENAME TO audit_log;

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

CREATE TRIGGER audit_log_is_not_replaced BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = new.id)
BEGIN
    SELECT RAISE(ABORT, 'audit_log: what was recorded never changes');
END;
