-- Groups of dead and failed jobs by what went wrong, for each tenant, and once for all tenants
-- together. `jobs` are those that are still in the history, `jobs_ever` those since `first_seen`.
CREATE TABLE error_groups (
    tenant TEXT NOT NULL, -- '': all tenants together
    fingerprint TEXT NOT NULL,
    name TEXT NOT NULL,
    error_code TEXT,
    shape TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    jobs_ever INTEGER NOT NULL,
    first_seen TEXT NOT NULL,
    last_seen TEXT NOT NULL,
    example_id TEXT NOT NULL CHECK (length(example_id) = 36), -- the job that ended last
    queues TEXT NOT NULL CHECK (json_valid(queues)),
    state TEXT NOT NULL CHECK (state IN ('new', 'acknowledged', 'resolved', 'back')),
    state_since TEXT,
    state_by TEXT,
    note TEXT,
    resolved_in TEXT, -- a version of the application
    PRIMARY KEY (tenant, fingerprint),
    CHECK (jobs >= 0 AND jobs <= jobs_ever),
    CHECK (first_seen <= last_seen),
    CHECK (state = 'new' OR state_since IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX error_groups_recent ON error_groups (tenant, last_seen, fingerprint);
CREATE INDEX error_groups_largest ON error_groups (tenant, jobs, fingerprint);
CREATE INDEX error_groups_tenants ON error_groups (fingerprint, jobs);
CREATE INDEX error_groups_empty ON error_groups (last_seen) WHERE jobs = 0;

-- The jobs that the groups count: each is counted in the transaction that adds its row.
CREATE TABLE error_group_jobs (
    job_id TEXT NOT NULL PRIMARY KEY CHECK (length(job_id) = 36),
    tenant TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    queue TEXT NOT NULL,
    ended_at TEXT NOT NULL,
    kept_until TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX error_group_jobs_group ON error_group_jobs (fingerprint, job_id);
CREATE INDEX error_group_jobs_tenant ON error_group_jobs (tenant, fingerprint, job_id);
CREATE INDEX error_group_jobs_kept ON error_group_jobs (kept_until);

-- How far the groups follow the history: `newest` for jobs as they end, `late` for those that were
-- committed long after their end. Whoever advances a place counts the jobs up to it.
CREATE TABLE error_group_places (
    name TEXT NOT NULL PRIMARY KEY CHECK (name IN ('newest', 'late')),
    ended_at TEXT NOT NULL,
    job_id TEXT NOT NULL CHECK (length(job_id) = 36),
    turn INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

INSERT INTO error_group_places (name, ended_at, job_id) VALUES
    ('newest', '1970-01-01T00:00:00.000000Z', '00000000-0000-0000-0000-000000000000'),
    ('late', '1970-01-01T00:00:00.000000Z', '00000000-0000-0000-0000-000000000000');
