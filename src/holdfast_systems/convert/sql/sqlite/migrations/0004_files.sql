-- A conversion shows when it last changed, and ends with its files: after their retention, first the
-- upload is removed, then the result with its row.
DROP VIEW convert_jobs;

ALTER TABLE convert_conversions ADD COLUMN ended_at TEXT;
ALTER TABLE convert_conversions ADD COLUMN upload_removed_at TEXT CHECK (
    upload_removed_at IS NULL OR ended_at IS NOT NULL
);

UPDATE convert_conversions
SET ended_at = coalesce(completed_at, failed_at)
WHERE completed_at IS NOT NULL OR failed_at IS NOT NULL;

-- For lists of a tenant, newest first.
CREATE INDEX convert_conversions_tenant ON convert_conversions (tenant, job_id);
-- For the cleanup: what may have ended, whose upload is left, what is left at all.
CREATE INDEX convert_conversions_open ON convert_conversions (job_id)
    WHERE ended_at IS NULL;
CREATE INDEX convert_conversions_uploads ON convert_conversions (ended_at)
    WHERE upload_removed_at IS NULL AND ended_at IS NOT NULL;
CREATE INDEX convert_conversions_results ON convert_conversions (ended_at)
    WHERE upload_removed_at IS NOT NULL;
CREATE INDEX convert_conversions_upload ON convert_conversions (upload_id);

-- A job is in one of the two tables. Only the first line of an error's text is shown: the others are
-- a traceback. A waiting job whose last start is later than the end of its last attempt was released
-- by a worker that stopped: it has been due since then.
CREATE VIEW convert_jobs AS
WITH conversion AS (
    SELECT
        own.*,
        coalesce(live.state, past.state) AS state,
        coalesce(live.attempt, past.attempt, own.attempts_made) AS attempts,
        coalesce(live.started_at, past.started_at) AS started,
        coalesce(live.finished_at, past.finished_at) AS finished,
        coalesce(live.error_code, past.error_code) AS last_code,
        coalesce(live.error_text, past.error_text) || char(10) AS lines,
        live.lease_owner AS leased_by,
        live.lease_expires_at AS lease_expires,
        CASE WHEN live.state = 'queued' THEN coalesce(live.held_run_at, live.run_at) END AS due,
        coalesce(
            (SELECT max(ended_at) FROM attempts WHERE attempts.job_id = own.job_id), 0
        ) AS attempt_ended
    FROM convert_conversions AS own
    LEFT JOIN jobs AS live ON live.id = own.job_id
    LEFT JOIN history AS past ON past.id = own.job_id
),
shown AS (
    SELECT
        *,
        substr(lines, 1, instr(lines, char(10)) - 1) AS last_line,
        max(
            coalesce(started, 0), attempt_ended, coalesce(finished, 0),
            CASE WHEN started > attempt_ended THEN coalesce(due, 0) ELSE 0 END
        ) AS moved
    FROM conversion
)
SELECT
    job_id AS id,
    tenant,
    CASE
        WHEN completed_at IS NOT NULL THEN 'complete'
        WHEN failed_at IS NOT NULL THEN 'failed'
        WHEN state = 'running' THEN 'processing'
        WHEN state = 'dead' THEN 'failed'
        ELSE state
    END AS status,
    upload_id,
    mapping,
    original_filename,
    created_at,
    max(
        created_at, coalesce(completed_at, ''), coalesce(failed_at, ''),
        strftime('%Y-%m-%dT%H:%M:%S', moved / 1000000, 'unixepoch')
            || printf('.%06dZ', moved % 1000000)
    ) AS updated_at,
    attempts,
    leased_by,
    strftime('%Y-%m-%dT%H:%M:%S', lease_expires / 1000000, 'unixepoch')
        || printf('.%06dZ', lease_expires % 1000000) AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', started / 1000000, 'unixepoch')
        || printf('.%06dZ', started % 1000000) AS started_at,
    completed_at,
    coalesce(
        failed_at,
        CASE WHEN state IN ('failed', 'dead') THEN
            strftime('%Y-%m-%dT%H:%M:%S', finished / 1000000, 'unixepoch')
            || printf('.%06dZ', finished % 1000000)
        END
    ) AS failed_at,
    result_path,
    CASE WHEN completed_at IS NULL THEN coalesce(last_code, error_code) END AS error_code,
    CASE WHEN completed_at IS NULL THEN coalesce(last_line, error_message) END AS error_message
FROM shown
WHERE state IS NOT NULL OR completed_at IS NOT NULL OR failed_at IS NOT NULL;
