-- One row for each Idempotency-Key. Its answer, once there is one, is what a repeated request gets.
CREATE TABLE api_requests (
    scope TEXT NOT NULL, -- the caller's tenant; empty for callers that see all tenants
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL, -- of the method, the path and the body
    token TEXT NOT NULL, -- of the request that is working on it
    in_flight_until TEXT NOT NULL, -- after which another request may take over
    expires_at TEXT NOT NULL,
    status INTEGER, -- NULL while it is in flight
    headers TEXT CHECK (headers IS NULL OR json_valid(headers)),
    body BLOB, -- compressed
    PRIMARY KEY (scope, key),
    CHECK ((status IS NULL) = (body IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX api_requests_expires ON api_requests (expires_at);

CREATE TABLE bulk_changes (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT, -- NULL: made by somebody who sees all tenants
    action TEXT NOT NULL CHECK (action IN ('cancel', 'retry', 'requeue')),
    state TEXT NOT NULL CHECK (
        state IN ('previewed', 'running', 'paused', 'completed', 'canceled', 'expired')
    ),
    filter TEXT CHECK (filter IS NULL OR json_valid(filter)), -- NULL: the ids were given
    again INTEGER NOT NULL CHECK (again IN (0, 1)),
    jobs_per_second REAL CHECK (jobs_per_second > 0),
    made_by TEXT,
    because TEXT,
    total INTEGER NOT NULL CHECK (total >= 0),
    capped INTEGER NOT NULL CHECK (capped IN (0, 1)),
    requeued_before INTEGER NOT NULL,
    counts TEXT NOT NULL CHECK (json_valid(counts)),
    done INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,
    requeued_already INTEGER NOT NULL DEFAULT 0,
    moved_on INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    started_at TEXT,
    running_since TEXT, -- the last start or resume
    running_from INTEGER NOT NULL DEFAULT 0, -- what was done by then
    ended_at TEXT,
    error_text TEXT, -- why it paused by itself
    owner TEXT, -- of the lease
    fence INTEGER NOT NULL DEFAULT 0,
    lease_expires_at TEXT,
    next_step_at TEXT,
    expires_at TEXT, -- when it is deleted
    CHECK (done = changed + requeued_already + moved_on + refused AND done <= total),
    CHECK (state <> 'completed' OR done = total),
    CHECK ((state IN ('running', 'paused')) = (expires_at IS NULL)),
    CHECK (state <> 'running' OR next_step_at IS NOT NULL),
    CHECK ((owner IS NULL) = (lease_expires_at IS NULL))
) STRICT;

CREATE INDEX bulk_changes_running ON bulk_changes (started_at) WHERE state = 'running';
CREATE INDEX bulk_changes_expires ON bulk_changes (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX bulk_changes_tenant ON bulk_changes (tenant, id) WHERE tenant IS NOT NULL;

-- The jobs of a change are fixed when it is previewed. Those up to `done` have been changed.
CREATE TABLE bulk_jobs (
    change_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    job_id TEXT NOT NULL CHECK (length(job_id) = 36),
    PRIMARY KEY (change_id, position)
) STRICT, WITHOUT ROWID;
