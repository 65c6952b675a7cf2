-- An attempt without a response has no headers, and in older versions of SQLite json_valid(NULL) is 0,
-- not NULL. SQLite can't alter a CHECK, so replace the table.
CREATE TABLE webhook_attempt_log_before AS SELECT * FROM webhook_attempt_log;

DROP TABLE webhook_attempt_log;

CREATE TABLE webhook_attempt_log (
    attempt_id TEXT NOT NULL PRIMARY KEY REFERENCES webhook_attempts,
    saga_id TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    response_status INTEGER,
    response_headers TEXT CHECK (response_headers IS NULL OR json_valid(response_headers)),
    response_body BLOB,
    error_code TEXT CHECK (length(error_code) <= 100),
    error_text TEXT,
    logged_at TEXT NOT NULL
) STRICT;

INSERT INTO webhook_attempt_log (
    attempt_id, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
)
SELECT
    attempt_id, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
FROM webhook_attempt_log_before;

DROP TABLE webhook_attempt_log_before;

CREATE TRIGGER webhook_attempt_log_stays BEFORE UPDATE ON webhook_attempt_log
BEGIN
    SELECT RAISE(ABORT, 'webhook_attempt_log: what was logged never changes');
END;
