CREATE TABLE webhook_subscriptions (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT,
    url TEXT NOT NULL,
    event_types TEXT NOT NULL CHECK (json_valid(event_types)), -- a list; an empty one means all
    preset TEXT NOT NULL CHECK (preset IN ('standard', 'bpc')),
    created_at TEXT NOT NULL
) STRICT;

CREATE INDEX webhook_subscriptions_tenant ON webhook_subscriptions (coalesce(tenant, ''), id);

CREATE TABLE webhook_secrets (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    secret TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE INDEX webhook_secrets_subscription ON webhook_secrets (subscription_id);

CREATE TABLE webhook_events (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT,
    event_type TEXT NOT NULL,
    aggregate_type TEXT,
    aggregate_id TEXT,
    occurred_at TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE webhook_sagas (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT,
    event_id TEXT NOT NULL REFERENCES webhook_events,
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    status TEXT NOT NULL DEFAULT 'Pending'
        CHECK (status IN ('Pending', 'InFlight', 'Delivered', 'DeadLettered', 'Canceled')),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at TEXT,
    requeued_from TEXT UNIQUE, -- the dead letter
    created_at TEXT NOT NULL,
    ended_at TEXT,
    CHECK ((status = 'Pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((status IN ('Pending', 'InFlight')) = (ended_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX webhook_sagas_event ON webhook_sagas (event_id, subscription_id)
    WHERE requeued_from IS NULL;
CREATE INDEX webhook_sagas_of_event ON webhook_sagas (event_id);

-- One row for each attempt. It outlives the job of the same id, which goes to the history.
CREATE TABLE webhook_attempts (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    saga_id TEXT NOT NULL REFERENCES webhook_sagas,
    attempt_no INTEGER NOT NULL CHECK (attempt_no >= 1),
    status TEXT NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Completed', 'Failed')),
    attempt_at TEXT NOT NULL,
    ended_at TEXT,
    response_status INTEGER,
    error_code TEXT CHECK (length(error_code) <= 100),
    UNIQUE (saga_id, attempt_no),
    CHECK ((status = 'Pending') = (ended_at IS NULL)),
    CHECK ((status = 'Failed') = (error_code IS NOT NULL)),
    CHECK (status <> 'Completed' OR response_status IS NOT NULL)
) STRICT;

CREATE TABLE webhook_attempt_log (
    attempt_id TEXT NOT NULL PRIMARY KEY REFERENCES webhook_attempts,
    saga_id TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    response_status INTEGER,
    response_headers TEXT CHECK (json_valid(response_headers)),
    response_body BLOB,
    error_code TEXT CHECK (length(error_code) <= 100),
    error_text TEXT,
    logged_at TEXT NOT NULL
) STRICT;

CREATE TABLE webhook_dead_letters (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT,
    saga_id TEXT NOT NULL UNIQUE REFERENCES webhook_sagas,
    event_id TEXT NOT NULL REFERENCES webhook_events,
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    final_error_code TEXT NOT NULL CHECK (length(final_error_code) <= 100),
    failed_at TEXT NOT NULL,
    payload_snapshot TEXT NOT NULL CHECK (json_valid(payload_snapshot))
) STRICT;

CREATE INDEX webhook_dead_letters_event ON webhook_dead_letters (event_id);
CREATE INDEX webhook_dead_letters_tenant ON webhook_dead_letters (coalesce(tenant, ''), id);

CREATE TRIGGER webhook_events_stay BEFORE UPDATE ON webhook_events
BEGIN
    SELECT RAISE(ABORT, 'webhook_events: an event never changes');
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
WHEN old.status <> 'Pending'
    OR new.id <> old.id OR new.saga_id <> old.saga_id OR new.attempt_no <> old.attempt_no
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
    OR new.id <> old.id OR new.event_id <> old.event_id
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
