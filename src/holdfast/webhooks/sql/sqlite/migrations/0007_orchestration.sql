-- The orchestrator now finds its own work: sagas that are due, attempts that were reported but not
-- judged, and attempts whose job may have ended without a report. Event ids belong to a tenant.
-- SQLite can't alter keys, so replace the tables: what refers to others goes first, and comes last.
ALTER TABLE webhook_subscriptions ADD COLUMN disabled_at TEXT;

DROP VIEW webhook_delivery_jobs;
DROP VIEW dead_letters;

CREATE TABLE webhook_attempt_log_before AS
SELECT log.*, saga.tenant AS tenant
FROM webhook_attempt_log AS log
JOIN webhook_sagas AS saga ON saga.id = log.saga_id;
CREATE TABLE webhook_attempts_before AS
SELECT
    attempt.*, saga.tenant AS tenant,
    attempt.status <> 'Pending'
    AND NOT (saga.status = 'InFlight' AND saga.attempt_count = attempt.attempt_no) AS judged
FROM webhook_attempts AS attempt
JOIN webhook_sagas AS saga ON saga.id = attempt.saga_id;
CREATE TABLE webhook_dead_letters_before AS SELECT * FROM webhook_dead_letters;
CREATE TABLE webhook_sagas_before AS SELECT * FROM webhook_sagas;
CREATE TABLE webhook_events_before AS SELECT * FROM webhook_events;

DROP TABLE webhook_attempt_log;
DROP TABLE webhook_attempts;
DROP TABLE webhook_dead_letters;
DROP TABLE webhook_sagas;
DROP TABLE webhook_events;

CREATE TABLE webhook_events (
    id TEXT NOT NULL CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    event_type TEXT NOT NULL,
    aggregate_type TEXT,
    aggregate_id TEXT,
    occurred_at TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    created_at TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE TABLE webhook_sagas (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    event_id TEXT NOT NULL,
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    status TEXT NOT NULL DEFAULT 'Pending'
        CHECK (status IN ('Pending', 'InFlight', 'Delivered', 'DeadLettered', 'Canceled')),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at TEXT,
    requeued_from TEXT, -- the dead letter
    created_at TEXT NOT NULL,
    ended_at TEXT,
    FOREIGN KEY (tenant, event_id) REFERENCES webhook_events,
    CHECK ((status = 'Pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((status IN ('Pending', 'InFlight')) = (ended_at IS NULL))
) STRICT;

-- One row for each attempt. It outlives the job of the same id, which goes to the history. At
-- `check_at`, the orchestrator checks whether that job still exists.
CREATE TABLE webhook_attempts (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    saga_id TEXT NOT NULL REFERENCES webhook_sagas,
    attempt_no INTEGER NOT NULL CHECK (attempt_no >= 1),
    status TEXT NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Completed', 'Failed')),
    judged INTEGER NOT NULL DEFAULT 0 CHECK (judged IN (0, 1)),
    attempt_at TEXT NOT NULL,
    check_at TEXT NOT NULL,
    ended_at TEXT,
    response_status INTEGER,
    error_code TEXT CHECK (length(error_code) <= 100),
    UNIQUE (saga_id, attempt_no),
    CHECK (NOT judged OR status <> 'Pending'),
    CHECK ((status = 'Pending') = (ended_at IS NULL)),
    CHECK ((status = 'Failed') = (error_code IS NOT NULL)),
    CHECK (status <> 'Completed' OR response_status IS NOT NULL)
) STRICT;

CREATE TABLE webhook_attempt_log (
    attempt_id TEXT NOT NULL PRIMARY KEY REFERENCES webhook_attempts,
    tenant TEXT NOT NULL,
    saga_id TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    response_status INTEGER,
    response_headers TEXT CHECK (response_headers IS NULL OR json_valid(response_headers)),
    response_body BLOB,
    error_code TEXT CHECK (length(error_code) <= 100),
    error_text TEXT,
    logged_at TEXT NOT NULL
) STRICT;

CREATE TABLE webhook_dead_letters (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    saga_id TEXT NOT NULL UNIQUE REFERENCES webhook_sagas,
    event_id TEXT NOT NULL,
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    final_error_code TEXT NOT NULL CHECK (length(final_error_code) <= 100),
    failed_at TEXT NOT NULL,
    payload_snapshot TEXT NOT NULL CHECK (json_valid(payload_snapshot)),
    FOREIGN KEY (tenant, event_id) REFERENCES webhook_events
) STRICT;

INSERT INTO webhook_events (
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
)
SELECT id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM webhook_events_before;

INSERT INTO webhook_sagas (
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
)
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM webhook_sagas_before;

INSERT INTO webhook_attempts (
    id, tenant, saga_id, attempt_no, status, judged, attempt_at, check_at, ended_at,
    response_status, error_code
)
SELECT
    id, tenant, saga_id, attempt_no, status, judged, attempt_at, attempt_at, ended_at,
    response_status, error_code
FROM webhook_attempts_before;

INSERT INTO webhook_attempt_log (
    attempt_id, tenant, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
)
SELECT
    attempt_id, tenant, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
FROM webhook_attempt_log_before;

INSERT INTO webhook_dead_letters (
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
)
SELECT
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM webhook_dead_letters_before;

DROP TABLE webhook_attempt_log_before;
DROP TABLE webhook_attempts_before;
DROP TABLE webhook_dead_letters_before;
DROP TABLE webhook_sagas_before;
DROP TABLE webhook_events_before;

CREATE UNIQUE INDEX webhook_sagas_event ON webhook_sagas (event_id, subscription_id)
    WHERE requeued_from IS NULL;
CREATE INDEX webhook_sagas_of_event ON webhook_sagas (event_id);
CREATE UNIQUE INDEX webhook_sagas_requeued_from ON webhook_sagas (requeued_from)
    WHERE requeued_from IS NOT NULL;
CREATE INDEX webhook_sagas_due ON webhook_sagas (next_attempt_at) WHERE status = 'Pending';
CREATE INDEX webhook_attempts_to_check ON webhook_attempts (check_at) WHERE status = 'Pending';
CREATE INDEX webhook_attempts_to_judge ON webhook_attempts (id)
    WHERE status <> 'Pending' AND NOT judged;
CREATE INDEX webhook_dead_letters_event ON webhook_dead_letters (event_id);
CREATE INDEX webhook_dead_letters_tenant ON webhook_dead_letters (tenant, id);

CREATE TRIGGER webhook_events_stay BEFORE UPDATE ON webhook_events
BEGIN
    SELECT RAISE(ABORT, 'webhook_events: an event never changes');
END;

-- The ids are UUIDv7, like those that applications make: 48 bits of milliseconds, then random ones.
CREATE TRIGGER webhook_events_start_sagas AFTER INSERT ON webhook_events
BEGIN
    INSERT INTO webhook_sagas (id, tenant, event_id, subscription_id, next_attempt_at, created_at)
    SELECT
        printf(
            '%08x-%04x-7%03x-%04x-%s', milliseconds >> 16, milliseconds & 0xffff,
            random() & 0xfff, 0x8000 | (random() & 0x3fff), lower(hex(randomblob(6)))
        ),
        new.tenant, new.id, subscription.id, new.created_at, new.created_at
    FROM webhook_subscriptions AS subscription
    CROSS JOIN (
        SELECT
            strftime('%s', new.created_at) * 1000 + substr(new.created_at, 21, 3)
            AS milliseconds
    )
    WHERE tenant = new.tenant AND disabled_at IS NULL AND (
        json_array_length(event_types) = 0
        OR EXISTS (SELECT 1 FROM json_each(event_types) WHERE value = new.event_type)
    );
END;

CREATE TRIGGER webhook_dead_letters_stay BEFORE UPDATE ON webhook_dead_letters
BEGIN
    SELECT RAISE(ABORT, 'webhook_dead_letters: a dead letter never changes');
END;

CREATE TRIGGER webhook_attempt_log_stays BEFORE UPDATE ON webhook_attempt_log
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempt_log: what was logged never changes');
END;

CREATE TRIGGER webhook_attempts_stay BEFORE UPDATE ON webhook_attempts
WHEN new.id <> old.id OR new.tenant <> old.tenant OR new.saga_id <> old.saga_id
    OR new.attempt_no <> old.attempt_no OR new.attempt_at <> old.attempt_at
    OR (old.judged AND NOT new.judged)
    OR (
        old.status <> 'Pending'
        AND (
            new.status <> old.status OR new.ended_at IS NOT old.ended_at
            OR new.response_status IS NOT old.response_status
            OR new.error_code IS NOT old.error_code
        )
    )
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempts: an attempt that was reported never changes');
END;

CREATE TRIGGER webhook_sagas_begin BEFORE INSERT ON webhook_sagas
WHEN new.status <> 'Pending' OR new.attempt_count <> 0
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: a saga begins as Pending, without attempts');
END;

CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON webhook_sagas
WHEN old.status NOT IN ('Pending', 'InFlight')
    OR new.id <> old.id OR new.tenant <> old.tenant OR new.event_id <> old.event_id
    OR new.subscription_id <> old.subscription_id
    OR new.requeued_from IS NOT old.requeued_from
    OR new.attempt_count < old.attempt_count
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: a saga that has ended never changes');
END;

CREATE TRIGGER webhook_sagas_leave_a_letter BEFORE UPDATE ON webhook_sagas
WHEN new.status = 'DeadLettered'
    AND NOT EXISTS (SELECT 1 FROM webhook_dead_letters WHERE saga_id = new.id)
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: the saga has no dead letter');
END;

CREATE TRIGGER webhook_attempts_of_live_sagas BEFORE INSERT ON webhook_attempts
WHEN NOT EXISTS (
    SELECT 1 FROM webhook_sagas WHERE id = new.saga_id AND status IN ('Pending', 'InFlight')
)
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempts: the saga has ended');
END;

CREATE TRIGGER webhook_dead_letters_of_live_sagas BEFORE INSERT ON webhook_dead_letters
WHEN NOT EXISTS (
    SELECT 1 FROM webhook_sagas WHERE id = new.saga_id AND status IN ('Pending', 'InFlight')
)
BEGIN
    SELECT RAISE(ABORT, 'webhook_dead_letters: the saga has ended');
END;

-- The engine's times are microseconds.
CREATE VIEW webhook_delivery_jobs AS
SELECT
    attempt.id,
    attempt.saga_id,
    CASE WHEN attempt.status = 'Pending' AND job.state = 'running' THEN 'Leased'
        ELSE attempt.status END AS status,
    strftime('%Y-%m-%dT%H:%M:%S', job.lease_expires_at / 1000000, 'unixepoch')
        || printf('.%06dZ', job.lease_expires_at % 1000000) AS lease_until,
    attempt.attempt_at,
    attempt.response_status,
    attempt.error_code
FROM webhook_attempts AS attempt
LEFT JOIN jobs AS job ON job.id = attempt.id;

CREATE VIEW dead_letters AS
SELECT
    id, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM webhook_dead_letters;

-- One queue becomes two, and the jobs of the orchestrator are no longer needed.
INSERT OR IGNORE INTO queues (name, paused_at, paused_by, paused_because, running_max)
SELECT value, paused_at, paused_by, paused_because, running_max
FROM queues CROSS JOIN json_each('["webhooks.delivery", "webhooks.orchestration"]')
WHERE name = 'webhooks';
UPDATE jobs SET queue = 'webhooks.delivery'
WHERE name = 'webhooks.deliver' AND finished_at IS NULL;
DELETE FROM jobs WHERE name = 'webhooks.orchestrate' AND finished_at IS NULL;
