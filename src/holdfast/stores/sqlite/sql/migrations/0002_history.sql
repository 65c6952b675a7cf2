-- Workers of version 1 run on this schema until they are replaced: their columns, states and
-- indexes stay. What they end in place, upkeep moves to the history.

-- Without constraints, for which SQLite would read every row of the file now.
ALTER TABLE jobs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN suspect INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;

-- A condition on the state would be evaluated at every claim.
CREATE INDEX jobs_suspects ON jobs (priority, run_at, id) WHERE suspect = 1;
CREATE INDEX jobs_leftovers ON jobs (id) WHERE finished_at IS NOT NULL;

-- What lists look at comes first, what can be long comes last.
CREATE TABLE history (
    id TEXT NOT NULL,
    kept_until INTEGER NOT NULL,
    state TEXT NOT NULL,
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT,
    correlation_id TEXT,
    tags TEXT NOT NULL,
    priority INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    snoozes INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    requeued_from TEXT,
    idempotency_key TEXT,
    error_code TEXT,
    error_text TEXT,
    arguments TEXT NOT NULL,
    progress TEXT,
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    PRIMARY KEY (id, kept_until),
    CONSTRAINT history_state CHECK (
        state = 'succeeded' OR state = 'failed' OR state = 'dead' OR state = 'canceled'
    )
) STRICT, WITHOUT ROWID;

CREATE INDEX history_kept_until ON history (kept_until);
-- SQLite asks every row for the state again, which would be looked up if it were not here.
CREATE INDEX history_unsuccessful ON history (id, state) WHERE state <> 'succeeded';
CREATE INDEX history_tenant ON history (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX history_correlation ON history (correlation_id, id)
    WHERE correlation_id IS NOT NULL;

CREATE TRIGGER history_never_changes BEFORE UPDATE ON history
BEGIN
    SELECT RAISE(ABORT, 'a job that has ended may not change');
END;

CREATE TABLE history_counts (
    tenant TEXT NOT NULL, -- '' for none
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, state)
) STRICT, WITHOUT ROWID;

-- A constraint can't be changed: the table is made anew.
ALTER TABLE attempts RENAME TO attempts_before;

CREATE TABLE attempts (
    job_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('failed', 'lost', 'crashed', 'canceled', 'released')),
    worker TEXT,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    error_code TEXT,
    error_text TEXT,
    PRIMARY KEY (job_id, fence)
) STRICT;

INSERT INTO attempts
    (job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text)
SELECT job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
FROM attempts_before;

DROP TABLE attempts_before;

CREATE INDEX attempts_ended ON attempts (ended_at);
