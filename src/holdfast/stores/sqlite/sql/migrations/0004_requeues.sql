-- Which ended jobs were enqueued anew, and as which job last. A table of its own: the new job may be
-- forgotten long before the old one.
CREATE TABLE requeues (
    job_id TEXT NOT NULL PRIMARY KEY,
    new_id TEXT NOT NULL,
    requeued_at INTEGER NOT NULL,
    kept_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX requeues_kept_until ON requeues (kept_until);
