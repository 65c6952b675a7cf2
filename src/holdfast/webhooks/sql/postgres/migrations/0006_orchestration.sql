-- The orchestrator now finds its own work: sagas that are due, attempts that were reported but not
-- judged, and attempts whose job may have ended without a report. Event ids belong to a tenant.
ALTER TABLE holdfast.webhook_subscriptions ADD COLUMN disabled_at timestamptz;

ALTER TABLE holdfast.webhook_sagas DROP CONSTRAINT webhook_sagas_event_id_fkey;
ALTER TABLE holdfast.webhook_dead_letters DROP CONSTRAINT webhook_dead_letters_event_id_fkey;
ALTER TABLE holdfast.webhook_events
    DROP CONSTRAINT webhook_events_pkey,
    ADD PRIMARY KEY (tenant, id);
ALTER TABLE holdfast.webhook_dead_letters
    ADD FOREIGN KEY (tenant, event_id) REFERENCES holdfast.webhook_events;
ALTER TABLE holdfast.webhook_sagas
    ADD FOREIGN KEY (tenant, event_id) REFERENCES holdfast.webhook_events,
    DROP CONSTRAINT webhook_sagas_requeued_from_key;
CREATE UNIQUE INDEX webhook_sagas_requeued_from ON holdfast.webhook_sagas (requeued_from)
    WHERE requeued_from IS NOT NULL;
CREATE INDEX webhook_sagas_due ON holdfast.webhook_sagas (next_attempt_at)
    WHERE status = 'Pending';

DROP TRIGGER webhook_attempts_stay ON holdfast.webhook_attempts;
ALTER TABLE holdfast.webhook_attempts
    DROP COLUMN guard_id,
    ADD COLUMN tenant text COLLATE "C",
    ADD COLUMN check_at timestamptz NOT NULL DEFAULT now(), -- whether its job still exists
    ADD COLUMN judged boolean NOT NULL DEFAULT false;
UPDATE holdfast.webhook_attempts AS attempt
SET
    tenant = saga.tenant,
    judged = attempt.status <> 'Pending'
        AND NOT (saga.status = 'InFlight' AND saga.attempt_count = attempt.attempt_no)
FROM holdfast.webhook_sagas AS saga
WHERE saga.id = attempt.saga_id;
ALTER TABLE holdfast.webhook_attempts
    ALTER COLUMN tenant SET NOT NULL,
    ADD CHECK (NOT judged OR status <> 'Pending');
CREATE INDEX webhook_attempts_to_check ON holdfast.webhook_attempts (check_at)
    WHERE status = 'Pending';
CREATE INDEX webhook_attempts_to_judge ON holdfast.webhook_attempts (id)
    WHERE status <> 'Pending' AND NOT judged;

CREATE TRIGGER webhook_attempts_stay BEFORE UPDATE ON holdfast.webhook_attempts FOR EACH ROW
WHEN (
    NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.saga_id <> OLD.saga_id
    OR NEW.attempt_no <> OLD.attempt_no OR NEW.attempt_at <> OLD.attempt_at
    OR (OLD.judged AND NOT NEW.judged)
    OR (
        OLD.status <> 'Pending'
        AND (NEW.status, NEW.ended_at, NEW.response_status, NEW.error_code)
            IS DISTINCT FROM (OLD.status, OLD.ended_at, OLD.response_status, OLD.error_code)
    )
)
EXECUTE FUNCTION holdfast.webhook_refuse('an attempt that was reported never changes');

DROP TRIGGER webhook_attempt_log_stays ON holdfast.webhook_attempt_log;
ALTER TABLE holdfast.webhook_attempt_log ADD COLUMN tenant text COLLATE "C";
UPDATE holdfast.webhook_attempt_log AS log SET tenant = saga.tenant
FROM holdfast.webhook_sagas AS saga
WHERE saga.id = log.saga_id;
ALTER TABLE holdfast.webhook_attempt_log ALTER COLUMN tenant SET NOT NULL;
CREATE TRIGGER webhook_attempt_log_stays
BEFORE UPDATE ON holdfast.webhook_attempt_log FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_refuse('what was logged never changes');

DROP TRIGGER webhook_sagas_stay ON holdfast.webhook_sagas;
CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON holdfast.webhook_sagas FOR EACH ROW
WHEN (
    OLD.status NOT IN ('Pending', 'InFlight')
    OR NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.event_id <> OLD.event_id
    OR NEW.subscription_id <> OLD.subscription_id
    OR NEW.requeued_from IS DISTINCT FROM OLD.requeued_from
    OR NEW.attempt_count < OLD.attempt_count
)
EXECUTE FUNCTION holdfast.webhook_refuse('a saga that has ended never changes');

-- A UUIDv7, like the ids that applications make: 48 bits of milliseconds, then random ones. The
-- version of a random UUID is 4, which two more bits make 7.
CREATE FUNCTION holdfast.webhook_new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
SELECT encode(
    set_bit(
        set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                PLACING substring(
                    int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3
                )
                FROM 1 FOR 6
            ),
            52, 1
        ),
        53, 1
    ),
    'hex'
)::uuid
$$;

-- These functions run as the owner: publishing or requeueing needs no privilege to write sagas. With
-- the setting `holdfast.tenant`, they stay within that tenant.

CREATE FUNCTION holdfast.webhook_start_sagas() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.webhook_sagas (
        id, tenant, event_id, subscription_id, next_attempt_at, created_at
    )
    SELECT holdfast.webhook_new_id(), NEW.tenant, NEW.id, id, now(), now()
    FROM holdfast.webhook_subscriptions
    WHERE tenant = NEW.tenant AND disabled_at IS NULL
        AND (json_array_length(event_types) = 0 OR event_types::jsonb ? NEW.event_type);
    IF FOUND THEN
        PERFORM pg_notify('holdfast', 'q:webhooks.orchestration');
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER webhook_events_start_sagas
AFTER INSERT ON holdfast.webhook_events FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_start_sagas();

-- Returns the new saga of the dead letter, which a second call returns again.
CREATE FUNCTION holdfast.requeue_dead_letter(letter uuid) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    only_tenant text := nullif(current_setting('holdfast.tenant', true), '');
    saga uuid;
BEGIN
    INSERT INTO holdfast.webhook_sagas (
        id, tenant, event_id, subscription_id, next_attempt_at, requeued_from, created_at
    )
    SELECT holdfast.webhook_new_id(), tenant, event_id, subscription_id, now(), id, now()
    FROM holdfast.webhook_dead_letters
    WHERE id = letter AND tenant = coalesce(only_tenant, tenant)
    ON CONFLICT (requeued_from) WHERE requeued_from IS NOT NULL DO NOTHING
    RETURNING id INTO saga;
    IF FOUND THEN
        PERFORM pg_notify('holdfast', 'q:webhooks.orchestration');
        RETURN saga;
    END IF;
    SELECT id INTO saga FROM holdfast.webhook_sagas
    WHERE requeued_from = letter AND tenant = coalesce(only_tenant, tenant);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'dead letter % does not exist', letter USING ERRCODE = 'no_data_found';
    END IF;
    RETURN saga;
END
$$;

-- Returns whether the subscription exists.
CREATE FUNCTION holdfast.disable_webhook_subscription(subscription uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    only_tenant text := nullif(current_setting('holdfast.tenant', true), '');
BEGIN
    UPDATE holdfast.webhook_subscriptions SET disabled_at = coalesce(disabled_at, now())
    WHERE id = subscription AND tenant = coalesce(only_tenant, tenant);
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION
    holdfast.webhook_new_id(), holdfast.webhook_start_sagas(), holdfast.requeue_dead_letter(uuid),
    holdfast.disable_webhook_subscription(uuid)
FROM PUBLIC;

-- With the caller's privileges, which older versions don't support.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 150000 THEN
        ALTER VIEW holdfast.webhook_delivery_jobs SET (security_invoker = true);
        ALTER VIEW holdfast.dead_letters SET (security_invoker = true);
    END IF;
END
$$;

-- One queue becomes two, and the jobs of the orchestrator are no longer needed.
INSERT INTO holdfast.queues (name, paused_at, paused_by, paused_because, running_max)
SELECT name_now, paused_at, paused_by, paused_because, running_max
FROM holdfast.queues
CROSS JOIN (VALUES ('webhooks.delivery'), ('webhooks.orchestration')) AS now (name_now)
WHERE name = 'webhooks'
ON CONFLICT (name) DO NOTHING;
UPDATE holdfast.jobs SET queue = 'webhooks.delivery'
WHERE name = 'webhooks.deliver' AND finished_at IS NULL;
DELETE FROM holdfast.jobs WHERE name = 'webhooks.orchestrate' AND finished_at IS NULL;
