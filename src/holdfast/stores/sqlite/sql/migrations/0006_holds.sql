-- A job may depend on something that a breaker guards, and may carry the trace that it belongs to.
-- A job that a breaker holds is due at the end of time (9223372036854775807), where no claim looks,
-- and keeps the due time that it had in `held_run_at`.
ALTER TABLE jobs ADD COLUMN breaker TEXT;
ALTER TABLE jobs ADD COLUMN trace TEXT;
ALTER TABLE jobs ADD COLUMN held_run_at INTEGER;
ALTER TABLE history ADD COLUMN breaker TEXT;
ALTER TABLE history ADD COLUMN trace TEXT;

-- A condition on the state would be evaluated at every claim. With queue and name, so that held jobs
-- that nobody here runs are passed over without a look at the table.
CREATE INDEX jobs_breaker ON jobs (breaker, run_at, id, queue, name) WHERE breaker IS NOT NULL;

-- What operators said about queues; others have no row.
CREATE TABLE queues (
    name TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER,
    paused_by TEXT,
    paused_because TEXT,
    running_max INTEGER CHECK (running_max >= 0) -- over all workers
) STRICT, WITHOUT ROWID;

-- What is known of a dependency that has failed; one that works has no row.
CREATE TABLE breakers (
    key TEXT NOT NULL PRIMARY KEY,
    failures TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(failures)), -- times, oldest first
    window_seconds REAL NOT NULL,
    probe_seconds REAL NOT NULL,
    opened_at INTEGER, -- NULL while it is closed
    opened_by TEXT, -- NULL if it opened by itself
    opened_because TEXT,
    next_probe_at INTEGER, -- NULL if none is made
    probed_id TEXT, -- the last job that was sent ahead; the next one has its turn after it
    letting_go INTEGER NOT NULL DEFAULT 0, -- closed, and jobs are still held
    times_opened INTEGER NOT NULL DEFAULT 0,
    changed_at INTEGER NOT NULL,
    CHECK (NOT letting_go OR opened_at IS NULL)
) STRICT;

CREATE INDEX breakers_holding ON breakers (key) WHERE opened_at IS NOT NULL OR letting_go;
CREATE INDEX breakers_changed ON breakers (changed_at);
