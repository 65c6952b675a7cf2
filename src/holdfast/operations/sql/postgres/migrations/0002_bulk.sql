-- One row for each Idempotency-Key. Its answer, once there is one, is what a repeated request gets.
CREATE TABLE holdfast.api_requests (
    scope text COLLATE "C" NOT NULL, -- the caller's tenant; empty for callers that see all tenants
    key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL, -- of the method, the path and the body
    token text NOT NULL, -- of the request that is working on it
    in_flight_until timestamptz NOT NULL, -- after which another request may take over
    expires_at timestamptz NOT NULL,
    status smallint, -- NULL while it is in flight
    headers text,
    body bytea, -- compressed
    PRIMARY KEY (scope, key),
    CHECK ((status IS NULL) = (body IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL))
);
CREATE INDEX api_requests_expires ON holdfast.api_requests (expires_at);

CREATE TABLE holdfast.bulk_changes (
    id uuid PRIMARY KEY,
    tenant text COLLATE "C", -- NULL: made by somebody who sees all tenants
    action text NOT NULL CHECK (action IN ('cancel', 'retry', 'requeue')),
    state text NOT NULL CHECK (
        state IN ('previewed', 'running', 'paused', 'completed', 'canceled', 'expired')
    ),
    filter text, -- NULL: the ids were given
    again boolean NOT NULL,
    jobs_per_second double precision CHECK (jobs_per_second > 0),
    made_by text,
    because text,
    total integer NOT NULL CHECK (total >= 0),
    capped boolean NOT NULL,
    requeued_before integer NOT NULL,
    counts text NOT NULL,
    done integer NOT NULL DEFAULT 0,
    changed integer NOT NULL DEFAULT 0,
    requeued_already integer NOT NULL DEFAULT 0,
    moved_on integer NOT NULL DEFAULT 0,
    refused integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    running_since timestamptz, -- the last start or resume
    running_from integer NOT NULL DEFAULT 0, -- what was done by then
    ended_at timestamptz,
    error_text text, -- why it paused by itself
    owner text, -- of the lease
    fence bigint NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    next_step_at timestamptz,
    expires_at timestamptz, -- when it is deleted
    CHECK (done = changed + requeued_already + moved_on + refused AND done <= total),
    CHECK (state <> 'completed' OR done = total),
    CHECK ((state IN ('running', 'paused')) = (expires_at IS NULL)),
    CHECK (state <> 'running' OR next_step_at IS NOT NULL),
    CHECK ((owner IS NULL) = (lease_expires_at IS NULL))
);
CREATE INDEX bulk_changes_running ON holdfast.bulk_changes (started_at) WHERE state = 'running';
CREATE INDEX bulk_changes_expires ON holdfast.bulk_changes (expires_at)
    WHERE expires_at IS NOT NULL;
CREATE INDEX bulk_changes_tenant ON holdfast.bulk_changes (tenant, id) WHERE tenant IS NOT NULL;

-- The jobs of a change are fixed when it is previewed. Those up to `done` have been changed.
CREATE TABLE holdfast.bulk_jobs (
    change_id uuid NOT NULL,
    position integer NOT NULL,
    job_id uuid NOT NULL,
    PRIMARY KEY (change_id, position)
);
