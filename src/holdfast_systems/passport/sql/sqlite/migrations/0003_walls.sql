-- Callers may choose the ID of a snapshot, so another tenant's snapshot must not be in its way. SQLite
-- can't alter a key: make the table again, while nothing refers to a missing row for good.
PRAGMA defer_foreign_keys = ON;

DROP TRIGGER passport_snapshot_facts_added;
DROP TRIGGER passport_snapshot_facts_changed;
DROP TRIGGER passport_snapshot_facts_removed;
DROP TRIGGER passport_snapshot_documents_added;
DROP TRIGGER passport_snapshot_documents_changed;
DROP TRIGGER passport_snapshot_documents_removed;

CREATE TABLE passport_snapshots_before AS
SELECT id, tenant, status, ordered, created_at, sealed_at FROM passport_snapshots;

DROP TABLE passport_snapshots;

CREATE TABLE passport_snapshots (
    id TEXT NOT NULL CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('OPEN', 'SEALED')),
    ordered TEXT CHECK (ordered IS NULL OR json_valid(ordered)), -- to compile when it is sealed
    created_at TEXT NOT NULL,
    sealed_at TEXT,
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'SEALED') = (sealed_at IS NOT NULL))
) STRICT;

INSERT INTO passport_snapshots (id, tenant, status, ordered, created_at, sealed_at)
SELECT id, tenant, status, ordered, created_at, sealed_at FROM passport_snapshots_before;

DROP TABLE passport_snapshots_before;

CREATE TRIGGER passport_snapshots_stay BEFORE UPDATE ON passport_snapshots
WHEN old.status = 'SEALED'
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshots_remain BEFORE DELETE ON passport_snapshots
WHEN old.status = 'SEALED'
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_facts_added BEFORE INSERT ON passport_snapshot_facts
WHEN NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = new.tenant AND id = new.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_facts_changed BEFORE UPDATE ON passport_snapshot_facts
WHEN (new.tenant, new.snapshot_id) <> (old.tenant, old.snapshot_id) OR NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = old.tenant AND id = old.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes, and rows stay in theirs'); END;

CREATE TRIGGER passport_snapshot_facts_removed BEFORE DELETE ON passport_snapshot_facts
WHEN NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = old.tenant AND id = old.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_documents_added BEFORE INSERT ON passport_snapshot_documents
WHEN NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = new.tenant AND id = new.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;

CREATE TRIGGER passport_snapshot_documents_changed BEFORE UPDATE ON passport_snapshot_documents
WHEN (new.tenant, new.snapshot_id) <> (old.tenant, old.snapshot_id) OR NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = old.tenant AND id = old.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes, and rows stay in theirs'); END;

CREATE TRIGGER passport_snapshot_documents_removed BEFORE DELETE ON passport_snapshot_documents
WHEN NOT EXISTS (
    SELECT 1 FROM passport_snapshots
    WHERE tenant = old.tenant AND id = old.snapshot_id AND status = 'OPEN'
)
BEGIN SELECT RAISE(ABORT, 'a sealed snapshot never changes'); END;
