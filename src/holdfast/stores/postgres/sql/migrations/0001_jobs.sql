CREATE SCHEMA IF NOT EXISTS holdfast;

CREATE TABLE holdfast.schema_version (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE holdfast.jobs (
    id uuid PRIMARY KEY,
    fence bigint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    lease_expires_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    snoozes integer NOT NULL DEFAULT 0,
    releases integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'queued',
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    lease_owner text COLLATE "C",
    arguments json NOT NULL,
    tenant text COLLATE "C",
    correlation_id text COLLATE "C",
    tags text[] NOT NULL DEFAULT '{}',
    idempotency_key text COLLATE "C",
    progress json,
    result json,
    error_code text COLLATE "C",
    error_text text,
    requeued_from uuid,
    CONSTRAINT jobs_state CHECK (
        state IN ('queued', 'running', 'succeeded', 'failed', 'dead', 'canceled')
    ),
    -- A job that waits can be claimed; one that has no attempt left would stop every claim.
    CONSTRAINT jobs_queued_has_attempt CHECK (state <> 'queued' OR attempt < max_attempts),
    CONSTRAINT jobs_running_has_lease CHECK (
        (state = 'running') = (lease_owner IS NOT NULL)
        AND (state = 'running') = (lease_expires_at IS NOT NULL)
    ),
    CONSTRAINT jobs_ended_has_finish CHECK (
        (state NOT IN ('queued', 'running')) = (finished_at IS NOT NULL)
    ),
    CONSTRAINT jobs_counters CHECK (
        attempt >= 0 AND attempt <= max_attempts AND max_attempts >= 1 AND max_attempts <= 1000
        AND fence >= 0
        AND snoozes >= 0 AND snoozes <= 1000
        AND releases >= 0 AND releases <= 100
    )
) WITH (
    -- Every job leaves two dead versions of its row; the claim's index should not wait for a
    -- fifth of the table to be dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05
);

-- All but the primary key are partial: ended rows cost the hot path nothing.
CREATE INDEX jobs_ready ON holdfast.jobs (queue, priority, run_at, id) WHERE state = 'queued';
CREATE INDEX jobs_leases ON holdfast.jobs (lease_expires_at) WHERE state = 'running';
CREATE INDEX jobs_expiring ON holdfast.jobs (expires_at)
    WHERE state = 'queued' AND expires_at IS NOT NULL;
CREATE INDEX jobs_unsuccessful ON holdfast.jobs (id)
    WHERE state IN ('failed', 'dead', 'canceled');
CREATE INDEX jobs_tenant ON holdfast.jobs (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_correlation ON holdfast.jobs (correlation_id, id)
    WHERE correlation_id IS NOT NULL;

CREATE FUNCTION holdfast.refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % may not go from % with fence % to % with fence %',
        OLD.id, OLD.state, OLD.fence, NEW.state, NEW.fence
        USING ERRCODE = 'check_violation';
END
$$;

-- The condition stands in WHEN, so that an update that is allowed calls no function.
CREATE TRIGGER jobs_moves BEFORE UPDATE ON holdfast.jobs FOR EACH ROW
WHEN (
    NEW.fence < OLD.fence
    OR OLD.state NOT IN ('queued', 'running')
    OR (OLD.state = 'queued' AND NEW.state NOT IN ('queued', 'running', 'canceled'))
)
EXECUTE FUNCTION holdfast.refuse_move();

CREATE TABLE holdfast.attempts (
    job_id uuid NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    worker text,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    error_code text,
    error_text text,
    PRIMARY KEY (job_id, fence),
    CONSTRAINT attempts_outcome CHECK (outcome IN ('failed', 'lost', 'canceled', 'released'))
);

CREATE TABLE holdfast.idempotency_keys (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    job_id uuid NOT NULL,
    body_hash bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_expiry ON holdfast.idempotency_keys (expires_at);
