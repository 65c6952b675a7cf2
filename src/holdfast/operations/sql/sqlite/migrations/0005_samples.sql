-- How queues were doing: a row for each queue that had jobs, and one for all queues together.
CREATE TABLE samples (
    seconds INTEGER NOT NULL CHECK (seconds IN (10, 60, 900)), -- how long the span of this row is
    queue TEXT NOT NULL, -- '' for all queues together
    at INTEGER NOT NULL CHECK (at % seconds = 0), -- when it begins, in seconds since 1970
    ready INTEGER, -- NULL until the queues have been looked at
    scheduled INTEGER NOT NULL DEFAULT 0,
    parked INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    oldest_seconds REAL NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    retried INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    canceled INTEGER NOT NULL DEFAULT 0,
    timed INTEGER NOT NULL DEFAULT 0, -- attempts that the percentiles stand for
    p50_seconds REAL NOT NULL DEFAULT 0,
    p95_seconds REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (seconds, queue, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX samples_at ON samples (seconds, at);
