CREATE TABLE holdfast.webhook_subscriptions (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C",
    url text NOT NULL,
    event_types json NOT NULL, -- a list; an empty one stands for all
    preset text NOT NULL CHECK (preset IN ('standard', 'bpc')),
    created_at timestamptz NOT NULL
);
CREATE INDEX webhook_subscriptions_tenant
    ON holdfast.webhook_subscriptions (coalesce(tenant, ''), id);

CREATE TABLE holdfast.webhook_secrets (
    id uuid PRIMARY KEY,
    subscription_id uuid NOT NULL REFERENCES holdfast.webhook_subscriptions,
    secret text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX webhook_secrets_subscription ON holdfast.webhook_secrets (subscription_id);

CREATE TABLE holdfast.webhook_events (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C",
    event_type text NOT NULL,
    aggregate_type text,
    aggregate_id text,
    occurred_at timestamptz NOT NULL,
    payload json NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE holdfast.webhook_sagas (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C",
    event_id uuid NOT NULL REFERENCES holdfast.webhook_events,
    subscription_id uuid NOT NULL REFERENCES holdfast.webhook_subscriptions,
    status text NOT NULL DEFAULT 'Pending'
        CHECK (status IN ('Pending', 'InFlight', 'Delivered', 'DeadLettered', 'Canceled')),
    attempt_count integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at timestamptz,
    requeued_from uuid UNIQUE, -- the dead letter
    created_at timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK ((status = 'Pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((status IN ('Pending', 'InFlight')) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX webhook_sagas_event ON holdfast.webhook_sagas (event_id, subscription_id)
    WHERE requeued_from IS NULL;
CREATE INDEX webhook_sagas_of_event ON holdfast.webhook_sagas (event_id);

-- One row for each attempt. It outlives the job of the same id, which goes to the history.
CREATE TABLE holdfast.webhook_attempts (
    id uuid PRIMARY KEY,
    saga_id uuid NOT NULL REFERENCES holdfast.webhook_sagas,
    attempt_no integer NOT NULL CHECK (attempt_no >= 1),
    status text NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Completed', 'Failed')),
    attempt_at timestamptz NOT NULL,
    ended_at timestamptz,
    response_status integer,
    error_code varchar(100),
    UNIQUE (saga_id, attempt_no),
    CHECK ((status = 'Pending') = (ended_at IS NULL)),
    CHECK ((status = 'Failed') = (error_code IS NOT NULL)),
    CHECK (status <> 'Completed' OR response_status IS NOT NULL)
);

CREATE TABLE holdfast.webhook_attempt_log (
    attempt_id uuid PRIMARY KEY REFERENCES holdfast.webhook_attempts,
    saga_id uuid NOT NULL,
    duration_ms integer NOT NULL,
    response_status integer,
    response_headers json,
    response_body bytea,
    error_code varchar(100),
    error_text text,
    logged_at timestamptz NOT NULL
);

CREATE TABLE holdfast.webhook_dead_letters (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C",
    saga_id uuid NOT NULL UNIQUE REFERENCES holdfast.webhook_sagas,
    event_id uuid NOT NULL REFERENCES holdfast.webhook_events,
    subscription_id uuid NOT NULL REFERENCES holdfast.webhook_subscriptions,
    final_error_code varchar(100) NOT NULL,
    failed_at timestamptz NOT NULL,
    payload_snapshot json NOT NULL
);
CREATE INDEX webhook_dead_letters_event ON holdfast.webhook_dead_letters (event_id);
CREATE INDEX webhook_dead_letters_tenant
    ON holdfast.webhook_dead_letters (coalesce(tenant, ''), id);

CREATE FUNCTION holdfast.webhook_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER webhook_events_stay BEFORE UPDATE ON holdfast.webhook_events FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_refuse('an event never changes');

CREATE TRIGGER webhook_dead_letters_stay
BEFORE UPDATE ON holdfast.webhook_dead_letters FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_refuse('a dead letter never changes');

CREATE TRIGGER webhook_attempt_log_stays
BEFORE UPDATE ON holdfast.webhook_attempt_log FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_refuse('what was logged never changes');

CREATE TRIGGER webhook_attempts_stay BEFORE UPDATE ON holdfast.webhook_attempts FOR EACH ROW
WHEN (
    OLD.status <> 'Pending'
    OR NEW.id <> OLD.id OR NEW.saga_id <> OLD.saga_id OR NEW.attempt_no <> OLD.attempt_no
)
EXECUTE FUNCTION holdfast.webhook_refuse('an attempt that was reported never changes');

CREATE TRIGGER webhook_sagas_begin BEFORE INSERT ON holdfast.webhook_sagas FOR EACH ROW
WHEN (NEW.status <> 'Pending' OR NEW.attempt_count <> 0)
EXECUTE FUNCTION holdfast.webhook_refuse('a saga begins as Pending, without attempts');

CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON holdfast.webhook_sagas FOR EACH ROW
WHEN (
    OLD.status NOT IN ('Pending', 'InFlight')
    OR NEW.id <> OLD.id OR NEW.event_id <> OLD.event_id
    OR NEW.subscription_id <> OLD.subscription_id
    OR NEW.requeued_from IS DISTINCT FROM OLD.requeued_from
    OR NEW.attempt_count < OLD.attempt_count
)
EXECUTE FUNCTION holdfast.webhook_refuse('a saga that has ended never changes');

CREATE FUNCTION holdfast.webhook_require_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.webhook_dead_letters WHERE saga_id = NEW.id) THEN
        RAISE EXCEPTION 'saga % has no dead letter', NEW.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER webhook_sagas_leave_a_letter
BEFORE UPDATE ON holdfast.webhook_sagas FOR EACH ROW
WHEN (NEW.status = 'DeadLettered')
EXECUTE FUNCTION holdfast.webhook_require_letter();

-- Locks the saga, to see whether another transaction has ended it.
CREATE FUNCTION holdfast.webhook_require_live_saga() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM holdfast.webhook_sagas
    WHERE id = NEW.saga_id AND status IN ('Pending', 'InFlight') FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'saga % has ended', NEW.saga_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER webhook_attempts_of_live_sagas
BEFORE INSERT ON holdfast.webhook_attempts FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_require_live_saga();

CREATE TRIGGER webhook_dead_letters_of_live_sagas
BEFORE INSERT ON holdfast.webhook_dead_letters FOR EACH ROW
EXECUTE FUNCTION holdfast.webhook_require_live_saga();

CREATE VIEW holdfast.webhook_delivery_jobs AS
SELECT
    attempt.id,
    attempt.saga_id,
    CASE WHEN attempt.status = 'Pending' AND job.state = 'running' THEN 'Leased'
        ELSE attempt.status END AS status,
    job.lease_expires_at AS lease_until,
    attempt.attempt_at,
    attempt.response_status,
    attempt.error_code
FROM holdfast.webhook_attempts AS attempt
LEFT JOIN holdfast.jobs AS job ON job.id = attempt.id;

CREATE VIEW holdfast.dead_letters AS
SELECT
    id, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM holdfast.webhook_dead_letters;
