-- The workers that are there. Each tells of itself at every renewal.
CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    running INTEGER NOT NULL,
    full_queues TEXT NOT NULL CHECK (json_valid(full_queues)), -- those that reached their limits
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    queues TEXT CHECK (queues IS NULL OR json_valid(queues)), -- with their limits; NULL for all
    names TEXT NOT NULL CHECK (json_valid(names)),
    concurrency INTEGER NOT NULL,
    suspects_only INTEGER NOT NULL,
    lease_seconds REAL NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;
