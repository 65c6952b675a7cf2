-- Times are microseconds since the epoch. Ids are UUIDs in their 36 characters, which sort like
-- the UUIDs themselves.

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    name TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued',
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN -32768 AND 32767),
    arguments TEXT NOT NULL CHECK (json_valid(arguments)),
    tenant TEXT,
    correlation_id TEXT,
    tags TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(tags)),
    idempotency_key TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL CHECK (max_attempts BETWEEN 1 AND 1000),
    snoozes INTEGER NOT NULL DEFAULT 0 CHECK (snoozes BETWEEN 0 AND 1000),
    releases INTEGER NOT NULL DEFAULT 0 CHECK (releases BETWEEN 0 AND 100),
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    lease_owner TEXT,
    lease_expires_at INTEGER,
    run_at INTEGER NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    progress TEXT CHECK (progress IS NULL OR json_valid(progress)),
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    error_code TEXT,
    error_text TEXT,
    requeued_from TEXT CHECK (length(requeued_from) = 36),
    -- Written without IN, for which SQLite would build a table at every change.
    CONSTRAINT jobs_state CHECK (
        state = 'succeeded' OR state = 'running' OR state = 'queued'
        OR state = 'failed' OR state = 'dead' OR state = 'canceled'
    ),
    CONSTRAINT jobs_attempts CHECK (attempt BETWEEN 0 AND max_attempts),
    -- A job that waits can be claimed; one that has no attempt left would stop every claim.
    CONSTRAINT jobs_waiting CHECK (state <> 'queued' OR attempt < max_attempts),
    CONSTRAINT jobs_lease CHECK (
        (state = 'running') = (lease_owner IS NOT NULL)
        AND (state = 'running') = (lease_expires_at IS NOT NULL)
    ),
    CONSTRAINT jobs_end CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL))
) STRICT;

-- Every index but the key's is partial, so that ended jobs cost the claims nothing. The name makes
-- this one covering: jobs that nobody here knows are passed over without a look at the table.
CREATE INDEX jobs_due ON jobs (queue, priority, run_at, id, name) WHERE state = 'queued';
CREATE INDEX jobs_leased ON jobs (lease_expires_at) WHERE state = 'running';
CREATE INDEX jobs_expiring ON jobs (expires_at)
    WHERE state = 'queued' AND expires_at IS NOT NULL;
-- Of what has ended, only a success has a result. (A condition on the state would be evaluated at
-- every claim.)
CREATE INDEX jobs_unsuccessful ON jobs (id) WHERE finished_at IS NOT NULL AND result IS NULL;

-- Without IN, as above.
CREATE TRIGGER jobs_transition BEFORE UPDATE ON jobs
WHEN new.fence < old.fence
    OR (old.state <> 'queued' AND old.state <> 'running')
    OR (
        old.state = 'queued'
        AND new.state <> 'queued' AND new.state <> 'running' AND new.state <> 'canceled'
    )
BEGIN
    SELECT RAISE(ABORT, 'a job may not make this move, nor may its fence fall');
END;

-- A lane is a queue and a priority in which jobs wait; run_at is when its first job is due. The walk
-- leaps from lane to lane over the index, whatever the number of jobs.
CREATE VIEW lanes (queue, priority, run_at) AS
WITH RECURSIVE head (number) AS (
    SELECT (
        SELECT first.rowid FROM jobs AS first INDEXED BY jobs_due
        WHERE first.state = 'queued'
        ORDER BY first.queue, first.priority, first.run_at, first.id LIMIT 1
    )
    UNION ALL
    SELECT coalesce(
        (
            SELECT following.rowid FROM jobs AS following INDEXED BY jobs_due
            WHERE following.state = 'queued'
                AND following.queue = current.queue AND following.priority > current.priority
            ORDER BY following.priority, following.run_at, following.id LIMIT 1
        ),
        (
            SELECT following.rowid FROM jobs AS following INDEXED BY jobs_due
            WHERE following.state = 'queued' AND following.queue > current.queue
            ORDER BY following.queue, following.priority, following.run_at, following.id LIMIT 1
        )
    )
    FROM head JOIN jobs AS current ON current.rowid = head.number
)
SELECT jobs.queue, jobs.priority, jobs.run_at
FROM head JOIN jobs ON jobs.rowid = head.number;

CREATE TABLE attempts (
    job_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('failed', 'lost', 'canceled', 'released')),
    worker TEXT,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    error_code TEXT,
    error_text TEXT,
    PRIMARY KEY (job_id, fence)
) STRICT;

CREATE TABLE idempotency_keys (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    job_id TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT;

CREATE INDEX idempotency_keys_expiring ON idempotency_keys (expires_at);
