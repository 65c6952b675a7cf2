-- Subscriptions can be enabled again and deleted; sagas can be canceled; events can be replayed, or
-- sent to one subscription as a test. Rows that have ended are deleted by retention, and by nothing
-- else. A worker reports its lease with the outcome, and how long the receiver asks to wait.
ALTER TABLE holdfast.webhook_subscriptions
    ADD COLUMN disabled_because text,
    ADD COLUMN deleted_at timestamptz,
    ADD COLUMN failing_since timestamptz, -- the first failure after the last success
    ADD COLUMN is_stopping boolean NOT NULL DEFAULT false, -- its waiting sagas are being canceled
    ADD CHECK (deleted_at IS NULL OR disabled_at IS NOT NULL);
UPDATE holdfast.webhook_subscriptions SET is_stopping = true WHERE disabled_at IS NOT NULL;
DROP INDEX holdfast.webhook_subscriptions_tenant;
CREATE INDEX webhook_subscriptions_tenant ON holdfast.webhook_subscriptions (tenant, id)
    WHERE deleted_at IS NULL;
CREATE INDEX webhook_subscriptions_stopping ON holdfast.webhook_subscriptions (id)
    WHERE is_stopping;
CREATE INDEX webhook_subscriptions_deleted ON holdfast.webhook_subscriptions (deleted_at)
    WHERE deleted_at IS NOT NULL;

ALTER TABLE holdfast.webhook_events ADD COLUMN only_for uuid; -- the subscription that it tests
CREATE INDEX webhook_events_of_tenant ON holdfast.webhook_events (tenant, created_at, id);
CREATE INDEX webhook_events_created ON holdfast.webhook_events (created_at);

CREATE TABLE holdfast.webhook_replays (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    subscription_id uuid, -- without one: all of the tenant's
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    after_at timestamptz NOT NULL, -- where the next step begins
    after_id uuid NOT NULL,
    events bigint NOT NULL DEFAULT 0,
    sagas bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    stepped_at timestamptz NOT NULL,
    ended_at timestamptz
);
CREATE INDEX webhook_replays_open ON holdfast.webhook_replays (stepped_at)
    WHERE ended_at IS NULL;
CREATE INDEX webhook_replays_ended ON holdfast.webhook_replays (ended_at)
    WHERE ended_at IS NOT NULL;

ALTER TABLE holdfast.webhook_sagas ADD COLUMN replay_id uuid;
DROP INDEX holdfast.webhook_sagas_event;
CREATE UNIQUE INDEX webhook_sagas_event ON holdfast.webhook_sagas (event_id, subscription_id)
    WHERE requeued_from IS NULL AND replay_id IS NULL;
CREATE UNIQUE INDEX webhook_sagas_replay
    ON holdfast.webhook_sagas (replay_id, event_id, subscription_id)
    WHERE replay_id IS NOT NULL;
CREATE INDEX webhook_sagas_replaying ON holdfast.webhook_sagas (replay_id)
    WHERE replay_id IS NOT NULL AND status = 'Pending';
CREATE INDEX webhook_sagas_tenant ON holdfast.webhook_sagas (tenant, id);
CREATE INDEX webhook_sagas_subscription ON holdfast.webhook_sagas (subscription_id, id);
CREATE INDEX webhook_sagas_waiting ON holdfast.webhook_sagas (subscription_id, id)
    WHERE status = 'Pending';
CREATE INDEX webhook_sagas_ended ON holdfast.webhook_sagas (ended_at)
    WHERE status IN ('Delivered', 'Canceled');
CREATE INDEX webhook_sagas_dead ON holdfast.webhook_sagas (ended_at)
    WHERE status = 'DeadLettered';
CREATE INDEX webhook_dead_letters_subscription
    ON holdfast.webhook_dead_letters (subscription_id, id);

DROP TRIGGER webhook_sagas_stay ON holdfast.webhook_sagas;
CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON holdfast.webhook_sagas FOR EACH ROW
WHEN (
    OLD.status NOT IN ('Pending', 'InFlight')
    OR NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.event_id <> OLD.event_id
    OR NEW.subscription_id <> OLD.subscription_id
    OR NEW.requeued_from IS DISTINCT FROM OLD.requeued_from
    OR NEW.replay_id IS DISTINCT FROM OLD.replay_id
    OR NEW.attempt_count < OLD.attempt_count
)
EXECUTE FUNCTION holdfast.webhook_refuse('a saga that has ended never changes');

ALTER TABLE holdfast.webhook_attempts
    ADD COLUMN lease_until timestamptz,
    ADD COLUMN worker_id text,
    ADD COLUMN retry_after_seconds double precision;
DROP TRIGGER webhook_attempts_stay ON holdfast.webhook_attempts;
CREATE TRIGGER webhook_attempts_stay BEFORE UPDATE ON holdfast.webhook_attempts FOR EACH ROW
WHEN (
    NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.saga_id <> OLD.saga_id
    OR NEW.attempt_no <> OLD.attempt_no OR NEW.attempt_at <> OLD.attempt_at
    OR (OLD.judged AND NOT NEW.judged)
    OR (
        OLD.status <> 'Pending'
        AND (
            NEW.status, NEW.ended_at, NEW.response_status, NEW.error_code, NEW.lease_until,
            NEW.worker_id, NEW.retry_after_seconds
        ) IS DISTINCT FROM (
            OLD.status, OLD.ended_at, OLD.response_status, OLD.error_code, OLD.lease_until,
            OLD.worker_id, OLD.retry_after_seconds
        )
    )
)
EXECUTE FUNCTION holdfast.webhook_refuse('an attempt that was reported never changes');

-- Only `delete_old_webhooks` sets this.
CREATE FUNCTION holdfast.webhook_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('holdfast.webhook_retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '%: only retention deletes rows', TG_TABLE_NAME
        USING ERRCODE = 'check_violation';
END
$$;
CREATE TRIGGER webhook_events_are_kept BEFORE DELETE ON holdfast.webhook_events
FOR EACH ROW EXECUTE FUNCTION holdfast.webhook_keep();
CREATE TRIGGER webhook_sagas_are_kept BEFORE DELETE ON holdfast.webhook_sagas
FOR EACH ROW EXECUTE FUNCTION holdfast.webhook_keep();
CREATE TRIGGER webhook_attempts_are_kept BEFORE DELETE ON holdfast.webhook_attempts
FOR EACH ROW EXECUTE FUNCTION holdfast.webhook_keep();
CREATE TRIGGER webhook_attempt_log_is_kept BEFORE DELETE ON holdfast.webhook_attempt_log
FOR EACH ROW EXECUTE FUNCTION holdfast.webhook_keep();
CREATE TRIGGER webhook_dead_letters_are_kept BEFORE DELETE ON holdfast.webhook_dead_letters
FOR EACH ROW EXECUTE FUNCTION holdfast.webhook_keep();

CREATE OR REPLACE FUNCTION holdfast.webhook_start_sagas() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.webhook_sagas (
        id, tenant, event_id, subscription_id, next_attempt_at, created_at
    )
    SELECT holdfast.webhook_new_id(), NEW.tenant, NEW.id, id, now(), now()
    FROM holdfast.webhook_subscriptions
    WHERE tenant = NEW.tenant AND deleted_at IS NULL AND disabled_at IS NULL
        AND id = coalesce(NEW.only_for, id)
        AND (
            NEW.only_for IS NOT NULL OR json_array_length(event_types) = 0
            OR event_types::jsonb ? NEW.event_type
        );
    IF FOUND THEN
        PERFORM pg_notify('holdfast', 'q:webhooks.orchestration');
    END IF;
    RETURN NULL;
END
$$;

-- Returns the new saga of the dead letter, which a second call returns again.
CREATE OR REPLACE FUNCTION holdfast.requeue_dead_letter(letter uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    only_tenant text := nullif(current_setting('holdfast.tenant', true), '');
    saga uuid;
BEGIN
    INSERT INTO holdfast.webhook_sagas (
        id, tenant, event_id, subscription_id, next_attempt_at, requeued_from, created_at
    )
    SELECT
        holdfast.webhook_new_id(), dead.tenant, dead.event_id, dead.subscription_id, now(),
        dead.id, now()
    FROM holdfast.webhook_dead_letters AS dead
    JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = dead.subscription_id
    WHERE dead.id = letter AND dead.tenant = coalesce(only_tenant, dead.tenant)
        AND subscription.disabled_at IS NULL
    ON CONFLICT (requeued_from) WHERE requeued_from IS NOT NULL DO NOTHING
    RETURNING id INTO saga;
    IF FOUND THEN
        PERFORM pg_notify('holdfast', 'q:webhooks.orchestration');
        RETURN saga;
    END IF;
    SELECT id INTO saga FROM holdfast.webhook_sagas
    WHERE requeued_from = letter AND tenant = coalesce(only_tenant, tenant);
    IF FOUND THEN
        RETURN saga;
    END IF;
    PERFORM FROM holdfast.webhook_dead_letters
    WHERE id = letter AND tenant = coalesce(only_tenant, tenant);
    IF FOUND THEN
        RAISE EXCEPTION 'the subscription of dead letter % is disabled or deleted', letter
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RAISE EXCEPTION 'dead letter % does not exist', letter USING ERRCODE = 'no_data_found';
END
$$;

-- Returns whether the saga was open.
CREATE FUNCTION holdfast.cancel_webhook_saga(saga uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_sagas
    SET status = 'Canceled', next_attempt_at = NULL, ended_at = now()
    WHERE id = saga AND status IN ('Pending', 'InFlight')
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant);
    RETURN FOUND;
END
$$;

-- Returns whether the subscription exists. The orchestrator then cancels its waiting sagas.
DROP FUNCTION holdfast.disable_webhook_subscription(uuid);
CREATE FUNCTION holdfast.disable_webhook_subscription(
    subscription uuid, because text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_subscriptions
    SET
        disabled_because = CASE WHEN disabled_at IS NULL THEN because ELSE disabled_because END,
        is_stopping = is_stopping OR disabled_at IS NULL,
        disabled_at = coalesce(disabled_at, now())
    WHERE id = subscription AND deleted_at IS NULL
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant);
    IF FOUND THEN
        PERFORM pg_notify('holdfast', 'q:webhooks.orchestration');
        RETURN true;
    END IF;
    RETURN false;
END
$$;

-- For the orchestrator: no saga of the subscription waits any longer.
CREATE FUNCTION holdfast.webhook_subscription_stopped(subscription uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_subscriptions SET is_stopping = false
    WHERE id = subscription AND is_stopping AND NOT EXISTS (
        SELECT FROM holdfast.webhook_sagas
        WHERE subscription_id = subscription AND status = 'Pending'
    );
END
$$;

-- For the orchestrator: whether each subscription has been failing since now, or no longer. A row
-- that is locked is left for the next result.
CREATE FUNCTION holdfast.note_webhook_results(results json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_subscriptions AS subscription
    SET failing_since = CASE WHEN given.failed THEN coalesce(failing_since, now()) END
    FROM (
        SELECT known.id, given.failed
        FROM json_to_recordset(results) AS given (id uuid, failed boolean)
        JOIN holdfast.webhook_subscriptions AS known ON known.id = given.id
        FOR NO KEY UPDATE OF known SKIP LOCKED
    ) AS given
    WHERE subscription.id = given.id;
END
$$;

-- Deletes some of what has ended, and returns how much. Fewer than `rows_max` means all of it.
CREATE FUNCTION holdfast.delete_old_webhooks(
    kept_seconds double precision, dead_kept_seconds double precision, rows_max integer
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept_from timestamptz := now() - make_interval(secs => kept_seconds);
    dead_kept_from timestamptz := now() - make_interval(secs => dead_kept_seconds);
    all_kept_from timestamptz := least(kept_from, dead_kept_from);
    old_sagas uuid[];
    old_subscriptions uuid[];
    events_deleted bigint;
    replays_deleted bigint;
BEGIN
    PERFORM set_config('holdfast.webhook_retention', 'on', true);
    old_sagas := ARRAY(
        SELECT id FROM holdfast.webhook_sagas
        WHERE status IN ('Delivered', 'Canceled') AND ended_at < kept_from
        ORDER BY ended_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    ) || ARRAY(
        SELECT id FROM holdfast.webhook_sagas
        WHERE status = 'DeadLettered' AND ended_at < dead_kept_from
        ORDER BY ended_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    );
    DELETE FROM holdfast.webhook_attempt_log AS log
    USING holdfast.webhook_attempts AS attempt
    WHERE attempt.saga_id = ANY (old_sagas) AND log.attempt_id = attempt.id;
    DELETE FROM holdfast.webhook_attempts WHERE saga_id = ANY (old_sagas);
    DELETE FROM holdfast.webhook_dead_letters WHERE saga_id = ANY (old_sagas);
    WITH gone AS (
        DELETE FROM holdfast.webhook_sagas WHERE id = ANY (old_sagas) RETURNING tenant, event_id
    )
    DELETE FROM holdfast.webhook_events AS event
    USING (SELECT DISTINCT tenant, event_id FROM gone) AS old
    WHERE event.tenant = old.tenant AND event.id = old.event_id
        AND event.created_at < kept_from
        AND NOT EXISTS (
            SELECT FROM holdfast.webhook_sagas AS saga
            WHERE saga.event_id = event.id AND saga.tenant = event.tenant
                AND saga.id <> ALL (old_sagas)
        );
    DELETE FROM holdfast.webhook_events AS event
    USING (
        SELECT tenant, id FROM holdfast.webhook_events AS old
        WHERE old.created_at < all_kept_from AND NOT EXISTS (
            SELECT FROM holdfast.webhook_sagas AS saga
            WHERE saga.event_id = old.id AND saga.tenant = old.tenant
        )
        ORDER BY old.created_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    ) AS unwanted
    WHERE event.tenant = unwanted.tenant AND event.id = unwanted.id;
    GET DIAGNOSTICS events_deleted = ROW_COUNT;
    DELETE FROM holdfast.webhook_replays WHERE id IN (
        SELECT id FROM holdfast.webhook_replays WHERE ended_at < kept_from
        ORDER BY ended_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS replays_deleted = ROW_COUNT;
    old_subscriptions := ARRAY(
        SELECT id FROM holdfast.webhook_subscriptions AS subscription
        WHERE deleted_at < all_kept_from AND NOT EXISTS (
            SELECT FROM holdfast.webhook_sagas WHERE subscription_id = subscription.id
        )
        ORDER BY deleted_at LIMIT rows_max FOR UPDATE SKIP LOCKED
    );
    DELETE FROM holdfast.webhook_secrets WHERE subscription_id = ANY (old_subscriptions);
    DELETE FROM holdfast.webhook_subscriptions WHERE id = ANY (old_subscriptions);
    PERFORM set_config('holdfast.webhook_retention', 'off', true);
    RETURN cardinality(old_sagas) + events_deleted + replays_deleted
        + cardinality(old_subscriptions);
END
$$;

REVOKE ALL ON FUNCTION
    holdfast.cancel_webhook_saga(uuid), holdfast.disable_webhook_subscription(uuid, text),
    holdfast.webhook_subscription_stopped(uuid), holdfast.note_webhook_results(json),
    holdfast.delete_old_webhooks(double precision, double precision, integer)
FROM PUBLIC;

CREATE OR REPLACE VIEW holdfast.webhook_delivery_jobs AS
SELECT
    attempt.id,
    attempt.saga_id,
    CASE WHEN attempt.status = 'Pending' AND job.state = 'running' THEN 'Leased'
        ELSE attempt.status END AS status,
    coalesce(job.lease_expires_at, attempt.lease_until) AS lease_until,
    attempt.attempt_at,
    attempt.response_status,
    attempt.error_code
FROM holdfast.webhook_attempts AS attempt
LEFT JOIN holdfast.jobs AS job ON job.id = attempt.id;

CREATE VIEW holdfast.sagas AS
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM holdfast.webhook_sagas;

CREATE VIEW holdfast.events AS
SELECT
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM holdfast.webhook_events;

CREATE VIEW holdfast.subscriptions AS
SELECT
    id, tenant, url, event_types, preset, created_at, disabled_at, disabled_because, failing_since
FROM holdfast.webhook_subscriptions
WHERE deleted_at IS NULL;

DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 150000 THEN
        ALTER VIEW holdfast.webhook_delivery_jobs SET (security_invoker = true);
        ALTER VIEW holdfast.sagas SET (security_invoker = true);
        ALTER VIEW holdfast.events SET (security_invoker = true);
        ALTER VIEW holdfast.subscriptions SET (security_invoker = true);
    END IF;
END
$$;
