-- A conversion belongs to the tenant of its job.
DROP VIEW convert_jobs;

ALTER TABLE convert_conversions ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';

-- A job is in one of the two tables. Only the first line of an error's text is shown: the others are
-- a traceback.
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
        live.lease_expires_at AS lease_expires
    FROM convert_conversions AS own
    LEFT JOIN jobs AS live ON live.id = own.job_id
    LEFT JOIN history AS past ON past.id = own.job_id
),
shown AS (
    SELECT *, substr(lines, 1, instr(lines, char(10)) - 1) AS last_line FROM conversion
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
