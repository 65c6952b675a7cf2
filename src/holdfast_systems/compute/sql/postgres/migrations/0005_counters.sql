-- The places at which the outputs of a failed job violate their contract: pointer and detail.
ALTER TABLE holdfast.compute_failures ADD COLUMN errors jsonb;

-- What the workers received and how it ended. Each row changes with the attempts that it counts.
CREATE TABLE holdfast.compute_counters (
    tenant_id text COLLATE "C" NOT NULL,
    definition text NOT NULL,
    version text NOT NULL,
    received bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    abandoned bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    solved bigint NOT NULL DEFAULT 0, -- completed by a call to the AppServer
    latency_ms double precision NOT NULL DEFAULT 0, -- of all these calls
    PRIMARY KEY (tenant_id, definition, version)
);

-- What is too old is found by its age.
CREATE INDEX compute_jobs_created_at ON holdfast.compute_jobs (created_at);
CREATE INDEX compute_artifacts_expires_at ON holdfast.compute_artifacts (expires_at)
WHERE expires_at IS NOT NULL;

DROP VIEW holdfast.job;

CREATE VIEW holdfast.job AS
SELECT
    request.id,
    request.tenant_id,
    request.app_id,
    request.definition,
    request.version,
    CASE
        WHEN result.job_id IS NOT NULL THEN 'succeeded'
        -- The engine deleted it from its history, so it ended, and without a result.
        WHEN live.id IS NULL AND ended.id IS NULL THEN 'failed'
        WHEN coalesce(live.state, ended.state) = 'dead' THEN 'failed'
        ELSE coalesce(live.state, ended.state)
    END AS status,
    request.inputs_hash,
    request.payload_json,
    coalesce(live.attempt, ended.attempt, result.attempts, failure.attempts, 0) AS attempts,
    CASE
        WHEN
            result.job_id IS NULL
            AND coalesce(live.error_code, ended.error_code, failure.code) IS NOT NULL
        THEN jsonb_strip_nulls(jsonb_build_object(
            'code', coalesce(live.error_code, ended.error_code, failure.code),
            -- The first line only: the others are a traceback.
            'message', split_part(
                coalesce(live.error_text, ended.error_text, failure.text, ''), E'\n', 1
            ),
            'errors', failure.errors
        ))
    END AS last_error,
    request.priority,
    request.created_at,
    coalesce(live.started_at, ended.started_at) AS started_at,
    coalesce(
        live.finished_at, ended.finished_at, result.created_at, failure.created_at
    ) AS ended_at
FROM holdfast.compute_jobs AS request
LEFT JOIN holdfast.compute_results AS result ON result.job_id = request.id
LEFT JOIN holdfast.compute_failures AS failure ON failure.job_id = request.id
LEFT JOIN holdfast.jobs AS live ON live.id = request.id
LEFT JOIN holdfast.history AS ended ON ended.id = request.id;

-- Only these delete anything, and only what has ended or expired. What belongs to a request is
-- deleted with it.
CREATE FUNCTION holdfast.compute_forget_jobs(ended_before timestamptz, rows_max integer)
RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM holdfast.compute_jobs
WHERE id IN (
    SELECT job.id
    FROM holdfast.job AS job
    WHERE job.tenant_id = coalesce(
            nullif(current_setting('holdfast.tenant', true), ''), job.tenant_id
        )
        AND job.created_at < ended_before
        AND job.status NOT IN ('queued', 'running')
        AND coalesce(job.ended_at, job.created_at) < ended_before
        -- A younger result may be a copy that links to these artifacts.
        AND NOT EXISTS (
            SELECT 1
            FROM holdfast.compute_jobs AS younger
            JOIN holdfast.compute_results AS result ON result.job_id = younger.id
            WHERE younger.inputs_hash = job.inputs_hash
                AND younger.created_at > job.created_at
                AND result.created_at >= ended_before
        )
    ORDER BY job.created_at
    LIMIT rows_max
)
RETURNING id
$$;
REVOKE EXECUTE ON FUNCTION holdfast.compute_forget_jobs(timestamptz, integer) FROM PUBLIC;

CREATE FUNCTION holdfast.compute_forget_artifacts(rows_max integer) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM holdfast.compute_artifacts
WHERE id IN (
    SELECT artifact.id
    FROM holdfast.compute_artifacts AS artifact
    JOIN holdfast.compute_jobs AS request ON request.id = artifact.job_id
    WHERE artifact.expires_at < now()
        AND request.tenant_id = coalesce(
            nullif(current_setting('holdfast.tenant', true), ''), request.tenant_id
        )
    ORDER BY artifact.expires_at
    LIMIT rows_max
)
RETURNING id
$$;
REVOKE EXECUTE ON FUNCTION holdfast.compute_forget_artifacts(integer) FROM PUBLIC;
