-- A conversion shows when it last changed, and ends with its files: after their retention, first the
-- upload is removed, then the result with its row.
DROP VIEW holdfast.convert_jobs;

ALTER TABLE holdfast.convert_conversions
    ADD COLUMN ended_at timestamptz,
    ADD COLUMN upload_removed_at timestamptz;

UPDATE holdfast.convert_conversions
SET ended_at = coalesce(completed_at, failed_at)
WHERE completed_at IS NOT NULL OR failed_at IS NOT NULL;

ALTER TABLE holdfast.convert_conversions
    ADD CONSTRAINT convert_conversions_ended CHECK (
        ended_at IS NOT NULL
        OR (completed_at IS NULL AND failed_at IS NULL AND upload_removed_at IS NULL)
    );

-- For lists of a tenant, newest first.
CREATE INDEX convert_conversions_tenant ON holdfast.convert_conversions (tenant, job_id);
-- For the cleanup: what may have ended, whose upload is left, what is left at all.
CREATE INDEX convert_conversions_open ON holdfast.convert_conversions (job_id)
    WHERE ended_at IS NULL;
CREATE INDEX convert_conversions_uploads ON holdfast.convert_conversions (ended_at)
    WHERE upload_removed_at IS NULL AND ended_at IS NOT NULL;
CREATE INDEX convert_conversions_results ON holdfast.convert_conversions (ended_at)
    WHERE upload_removed_at IS NOT NULL;
CREATE INDEX convert_conversions_upload ON holdfast.convert_conversions (upload_id);

-- Nobody may delete conversions, except workers those whose files are gone.
CREATE FUNCTION holdfast.convert_remove_conversion(conversion uuid, before timestamptz)
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM holdfast.convert_conversions
    WHERE job_id = conversion AND upload_removed_at IS NOT NULL AND ended_at < before
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant);
$$;
REVOKE EXECUTE ON FUNCTION holdfast.convert_remove_conversion(uuid, timestamptz) FROM PUBLIC;

-- A job is in one of the two tables. Only the first line of an error's text is shown: the others are
-- a traceback. A waiting job whose last start is later than the end of its last attempt was released
-- by a worker that stopped: it has been due since then.
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
        live.lease_expires_at,
        CASE WHEN live.state = 'queued' THEN coalesce(live.held_run_at, live.run_at) END AS due_at,
        (
            SELECT max(attempts.ended_at) FROM holdfast.attempts
            WHERE attempts.job_id = own.job_id
        ) AS attempt_ended_at
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
    greatest(
        created_at, started_at, attempt_ended_at, finished_at, completed_at, failed_at,
        CASE
            WHEN started_at > coalesce(attempt_ended_at, '-infinity'::timestamptz) THEN due_at
        END
    ) AS updated_at,
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
