-- A request outlives its job in the engine's tables, so that its inputs still find their result.
CREATE TABLE holdfast.compute_jobs (
    id uuid PRIMARY KEY, -- the id of the engine's job
    tenant_id uuid,
    app_id text NOT NULL,
    definition text NOT NULL,
    version text NOT NULL,
    inputs_hash text NOT NULL CHECK (length(inputs_hash) = 64),
    payload_json jsonb NOT NULL,
    priority integer NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX compute_jobs_inputs_hash ON holdfast.compute_jobs (inputs_hash, created_at);

CREATE TABLE holdfast.compute_results (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL UNIQUE REFERENCES holdfast.compute_jobs (id) ON DELETE CASCADE,
    outputs_json jsonb NOT NULL,
    score numeric,
    attempts integer NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE holdfast.compute_artifacts (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES holdfast.compute_jobs (id) ON DELETE CASCADE,
    kind text NOT NULL,
    url text NOT NULL,
    media_type text NOT NULL,
    content bytea, -- NULL: stored elsewhere, at the url
    expires_at timestamptz
);
CREATE INDEX compute_artifacts_job ON holdfast.compute_artifacts (job_id);

-- The job that stands for these inputs. Whoever inserts the row computes; all others wait for that
-- transaction. The row is inserted before its job.
CREATE TABLE holdfast.compute_hashes (
    inputs_hash text PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES holdfast.compute_jobs (id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX compute_hashes_job ON holdfast.compute_hashes (job_id);

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
    coalesce(live.attempt, ended.attempt, result.attempts, 0) AS attempts,
    CASE
        WHEN result.job_id IS NULL AND coalesce(live.error_code, ended.error_code) IS NOT NULL
        THEN jsonb_build_object(
            'code', coalesce(live.error_code, ended.error_code),
            -- The first line only: the others are a traceback.
            'text', split_part(coalesce(live.error_text, ended.error_text, ''), E'\n', 1)
        )
    END AS last_error,
    request.priority,
    request.created_at,
    coalesce(live.started_at, ended.started_at) AS started_at,
    coalesce(live.finished_at, ended.finished_at, result.created_at) AS ended_at
FROM holdfast.compute_jobs AS request
LEFT JOIN holdfast.compute_results AS result ON result.job_id = request.id
LEFT JOIN holdfast.jobs AS live ON live.id = request.id
LEFT JOIN holdfast.history AS ended ON ended.id = request.id;

CREATE VIEW holdfast.result AS
SELECT id, job_id, outputs_json, score, created_at FROM holdfast.compute_results;

CREATE VIEW holdfast.artifact AS
SELECT id, job_id, kind, url, expires_at FROM holdfast.compute_artifacts;
