-- A conversion belongs to the tenant of its job.
DROP VIEW holdfast.convert_jobs;

ALTER TABLE holdfast.convert_conversions
    ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';

-- A job is in one of the two tables. Only the first line of an error's text is shown: the others are
-- a traceback.
CREATE VIEW holdfast.convert_jobs AS
WITH conversion AS (
    SELECT
        own.*,
        coalesce(live.state, past.state) AS state,
        coalesce(live.attempt, past.attempt, own.attempts_made) AS attempts,
        coalesce(live.started_at, past.started_at) AS started_at,
        coalesce(live.finished_at, past.finished_at) AS finished_at,
        coalesce(live.error_code, past.error_code) AS last_code,
        split_part(coalesce(live.error_text, past.error_text), E'\n', 1) AS last_line,
        live.lease_owner AS leased_by,
        live.lease_expires_at
    FROM holdfast.convert_conversions AS own
    LEFT JOIN holdfast.jobs AS live ON live.id = own.job_id
    LEFT JOIN holdfast.history AS past ON past.id = own.job_id
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
    lease_expires_at,
    started_at,
    completed_at,
    coalesce(failed_at, CASE WHEN state IN ('failed', 'dead') THEN finished_at END) AS failed_at,
    result_path,
    CASE WHEN completed_at IS NULL THEN coalesce(last_code, error_code) END AS error_code,
    CASE WHEN completed_at IS NULL THEN coalesce(last_line, error_message) END AS error_message
FROM conversion
WHERE state IS NOT NULL OR completed_at IS NOT NULL OR failed_at IS NOT NULL;
