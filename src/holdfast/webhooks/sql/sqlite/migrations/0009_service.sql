-- Subscriptions can be enabled again and deleted; sagas can be canceled; events can be replayed, or
-- sent to one subscription as a test. Rows that have ended are deleted by retention, and by nothing
-- else. A worker reports its lease with the outcome, and how long the receiver asks to wait.
ALTER TABLE webhook_subscriptions ADD COLUMN disabled_because TEXT;
ALTER TABLE webhook_subscriptions ADD COLUMN deleted_at TEXT
    CHECK (deleted_at IS NULL OR disabled_at IS NOT NULL);
-- The first failure after the last success.
ALTER TABLE webhook_subscriptions ADD COLUMN failing_since TEXT;
-- Whether its waiting sagas are being canceled.
ALTER TABLE webhook_subscriptions ADD COLUMN is_stopping INTEGER NOT NULL DEFAULT 0
    CHECK (is_stopping IN (0, 1));
UPDATE webhook_subscriptions SET is_stopping = 1 WHERE disabled_at IS NOT NULL;
DROP INDEX webhook_subscriptions_tenant;
CREATE INDEX webhook_subscriptions_tenant ON webhook_subscriptions (tenant, id)
    WHERE deleted_at IS NULL;
CREATE INDEX webhook_subscriptions_stopping ON webhook_subscriptions (id) WHERE is_stopping;
CREATE INDEX webhook_subscriptions_deleted ON webhook_subscriptions (deleted_at)
    WHERE deleted_at IS NOT NULL;

-- The subscription that the event tests.
ALTER TABLE webhook_events ADD COLUMN only_for TEXT;
CREATE INDEX webhook_events_of_tenant ON webhook_events (tenant, created_at, id);
CREATE INDEX webhook_events_created ON webhook_events (created_at);

-- Without a subscription, it is for all of the tenant's. The next step begins after `after_at`,
-- `after_id`.
CREATE TABLE webhook_replays (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    subscription_id TEXT,
    since TEXT NOT NULL,
    until TEXT NOT NULL,
    after_at TEXT NOT NULL,
    after_id TEXT NOT NULL,
    events INTEGER NOT NULL DEFAULT 0,
    sagas INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    stepped_at TEXT NOT NULL,
    ended_at TEXT
) STRICT;
CREATE INDEX webhook_replays_open ON webhook_replays (stepped_at) WHERE ended_at IS NULL;
CREATE INDEX webhook_replays_ended ON webhook_replays (ended_at) WHERE ended_at IS NOT NULL;

ALTER TABLE webhook_sagas ADD COLUMN replay_id TEXT;
DROP INDEX webhook_sagas_event;
CREATE UNIQUE INDEX webhook_sagas_event ON webhook_sagas (event_id, subscription_id)
    WHERE requeued_from IS NULL AND replay_id IS NULL;
CREATE UNIQUE INDEX webhook_sagas_replay ON webhook_sagas (replay_id, event_id, subscription_id)
    WHERE replay_id IS NOT NULL;
CREATE INDEX webhook_sagas_replaying ON webhook_sagas (replay_id)
    WHERE replay_id IS NOT NULL AND status = 'Pending';
CREATE INDEX webhook_sagas_tenant ON webhook_sagas (tenant, id);
CREATE INDEX webhook_sagas_subscription ON webhook_sagas (subscription_id, id);
CREATE INDEX webhook_sagas_waiting ON webhook_sagas (subscription_id, id)
    WHERE status = 'Pending';
CREATE INDEX webhook_sagas_ended ON webhook_sagas (ended_at)
    WHERE status IN ('Delivered', 'Canceled');
CREATE INDEX webhook_sagas_dead ON webhook_sagas (ended_at) WHERE status = 'DeadLettered';
CREATE INDEX webhook_dead_letters_subscription ON webhook_dead_letters (subscription_id, id);

DROP TRIGGER webhook_sagas_stay;
CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON webhook_sagas
WHEN old.status NOT IN ('Pending', 'InFlight')
    OR new.id <> old.id OR new.tenant <> old.tenant OR new.event_id <> old.event_id
    OR new.subscription_id <> old.subscription_id
    OR new.requeued_from IS NOT old.requeued_from
    OR new.replay_id IS NOT old.replay_id
    OR new.attempt_count < old.attempt_count
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: a saga that has ended never changes');
END;

ALTER TABLE webhook_attempts ADD COLUMN lease_until TEXT;
ALTER TABLE webhook_attempts ADD COLUMN worker_id TEXT;
ALTER TABLE webhook_attempts ADD COLUMN retry_after_seconds REAL;
DROP TRIGGER webhook_attempts_stay;
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
            OR new.lease_until IS NOT old.lease_until
            OR new.worker_id IS NOT old.worker_id
            OR new.retry_after_seconds IS NOT old.retry_after_seconds
        )
    )
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempts: an attempt that was reported never changes');
END;

-- Has a row only within the transactions of retention.
CREATE TABLE webhook_retention (deletes INTEGER NOT NULL PRIMARY KEY CHECK (deletes = 1)) STRICT;

CREATE TRIGGER webhook_events_are_kept BEFORE DELETE ON webhook_events
WHEN NOT EXISTS (SELECT 1 FROM webhook_retention)
BEGIN
    SELECT RAISE(ABORT, 'webhook_events: only retention deletes rows');
END;

CREATE TRIGGER webhook_sagas_are_kept BEFORE DELETE ON webhook_sagas
WHEN NOT EXISTS (SELECT 1 FROM webhook_retention)
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: only retention deletes rows');
END;

CREATE TRIGGER webhook_attempts_are_kept BEFORE DELETE ON webhook_attempts
WHEN NOT EXISTS (SELECT 1 FROM webhook_retention)
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempts: only retention deletes rows');
END;

CREATE TRIGGER webhook_attempt_log_is_kept BEFORE DELETE ON webhook_attempt_log
WHEN NOT EXISTS (SELECT 1 FROM webhook_retention)
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempt_log: only retention deletes rows');
END;

CREATE TRIGGER webhook_dead_letters_are_kept BEFORE DELETE ON webhook_dead_letters
WHEN NOT EXISTS (SELECT 1 FROM webhook_retention)
BEGIN
    SELECT RAISE(ABORT, 'webhook_dead_letters: only retention deletes rows');
END;

DROP TRIGGER webhook_events_start_sagas;
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
    WHERE tenant = new.tenant AND deleted_at IS NULL AND disabled_at IS NULL
        AND id = coalesce(new.only_for, id)
        AND (
            new.only_for IS NOT NULL OR json_array_length(event_types) = 0
            OR EXISTS (SELECT 1 FROM json_each(event_types) WHERE value = new.event_type)
        );
END;

DROP VIEW webhook_delivery_jobs;
CREATE VIEW webhook_delivery_jobs AS
SELECT
    attempt.id,
    attempt.saga_id,
    CASE WHEN attempt.status = 'Pending' AND job.state = 'running' THEN 'Leased'
        ELSE attempt.status END AS status,
    coalesce(
        strftime('%Y-%m-%dT%H:%M:%S', job.lease_expires_at / 1000000, 'unixepoch')
        || printf('.%06dZ', job.lease_expires_at % 1000000),
        attempt.lease_until
    ) AS lease_until,
    attempt.attempt_at,
    attempt.response_status,
    attempt.error_code
FROM webhook_attempts AS attempt
LEFT JOIN jobs AS job ON job.id = attempt.id;

-- A table of the application in this file may have one of these names. Then it stays.
CREATE VIEW IF NOT EXISTS sagas AS
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM webhook_sagas;

CREATE VIEW IF NOT EXISTS events AS
SELECT
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM webhook_events;

CREATE VIEW IF NOT EXISTS subscriptions AS
SELECT
    id, tenant, url, event_types, preset, created_at, disabled_at, disabled_because, failing_since
FROM webhook_subscriptions
WHERE deleted_at IS NULL;
