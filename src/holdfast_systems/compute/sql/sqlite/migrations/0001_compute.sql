-- A request outlives its job in the engine's tables, so that its inputs still find their result.
CREATE TABLE compute_jobs (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36), -- the id of the engine's job
    tenant_id TEXT CHECK (length(tenant_id) = 36),
    app_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    version TEXT NOT NULL,
    inputs_hash TEXT NOT NULL CHECK (length(inputs_hash) = 64),
    payload_json TEXT NOT NULL CHECK (json_valid(payload_json)),
    priority INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
CREATE INDEX compute_jobs_inputs_hash ON compute_jobs (inputs_hash, created_at);

CREATE TABLE compute_results (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    job_id TEXT NOT NULL UNIQUE REFERENCES compute_jobs (id) ON DELETE CASCADE,
    outputs_json TEXT NOT NULL CHECK (json_valid(outputs_json)),
    score TEXT,
    attempts INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE compute_artifacts (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    job_id TEXT NOT NULL REFERENCES compute_jobs (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    url TEXT NOT NULL,
    media_type TEXT NOT NULL,
    content BLOB, -- NULL: stored elsewhere, at the url
    expires_at TEXT
) STRICT;
CREATE INDEX compute_artifacts_job ON compute_artifacts (job_id);

-- The job that stands for these inputs. The row is inserted before its job.
CREATE TABLE compute_hashes (
    inputs_hash TEXT NOT NULL PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES compute_jobs (id) ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE INDEX compute_hashes_job ON compute_hashes (job_id);

CREATE VIEW job AS
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
        THEN json_object(
            'code', coalesce(live.error_code, ended.error_code),
            -- The first line only: the others are a traceback.
            'text', substr(
                coalesce(live.error_text, ended.error_text, ''), 1,
                instr(coalesce(live.error_text, ended.error_text, '') || char(10), char(10)) - 1
            )
        )
    END AS last_error,
    request.priority,
    request.created_at,
    -- The engine stores microseconds.
    strftime(
        '%Y-%m-%dT%H:%M:%S', coalesce(live.started_at, ended.started_at) / 1000000, 'unixepoch'
    ) || printf('.%06dZ', coalesce(live.started_at, ended.started_at) % 1000000) AS started_at,
    coalesce(
        strftime(
            '%Y-%m-%dT%H:%M:%S', coalesce(live.finished_at, ended.finished_at) / 1000000,
            'unixepoch'
        ) || printf('.%06dZ', coalesce(live.finished_at, ended.finished_at) % 1000000),
        result.created_at
    ) AS ended_at
FROM compute_jobs AS request
LEFT JOIN compute_results AS result ON result.job_id = request.id
LEFT JOIN jobs AS live ON live.id = request.id
LEFT JOIN history AS ended ON ended.id = request.id;

CREATE VIEW result AS
SELECT id, job_id, outputs_json, score, created_at FROM compute_results;

CREATE VIEW artifact AS
SELECT id, job_id, kind, url, expires_at FROM compute_artifacts;
