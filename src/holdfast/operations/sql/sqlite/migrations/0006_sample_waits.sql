-- How long jobs had been due when they were claimed: a row for each step of the scale that a sample
-- has jobs in.
CREATE TABLE sample_waits (
    seconds INTEGER NOT NULL CHECK (seconds IN (10, 60, 900)), -- these are of the table samples
    queue TEXT NOT NULL,
    at INTEGER NOT NULL CHECK (at % seconds = 0),
    up_to_ms INTEGER NOT NULL, -- longer than the step before, and not longer than this
    jobs INTEGER NOT NULL,
    PRIMARY KEY (seconds, queue, at, up_to_ms)
) STRICT, WITHOUT ROWID;

CREATE INDEX sample_waits_at ON sample_waits (seconds, at);
