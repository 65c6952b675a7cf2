-- The places at which the outputs of a failed job violate their contract: pointer and detail.
ALTER TABLE compute_failures ADD COLUMN errors TEXT CHECK (errors IS NULL OR json_valid(errors));

-- What the workers received and how it ended. Each row changes with the attempts that it counts.
CREATE TABLE compute_counters (
    tenant_id TEXT NOT NULL,
    definition TEXT NOT NULL,
    version TEXT NOT NULL,
    received INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    abandoned INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    solved INTEGER NOT NULL DEFAULT 0, -- completed by a call to the AppServer
    latency_ms REAL NOT NULL DEFAULT 0, -- of all these calls
    PRIMARY KEY (tenant_id, definition, version)
) STRICT, WITHOUT ROWID;

-- What is too old is found by its age.
CREATE INDEX compute_jobs_created_at ON compute_jobs (created_at);
CREATE INDEX compute_artifacts_expires_at ON compute_artifacts (expires_at)
WHERE expires_at IS NOT NULL;

DROP VIEW job;

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
    coalesce(live.attempt, ended.attempt, result.attempts, failure.attempts, 0) AS attempts,
    CASE
        WHEN
            result.job_id IS NULL
            AND coalesce(live.error_code, ended.error_code, failure.code) IS NOT NULL
        THEN json_patch(json_object(
            'code', coalesce(live.error_code, ended.error_code, failure.code),
            -- The first line only: the others are a traceback.
            'message', substr(
                coalesce(live.error_text, ended.error_text, failure.text, ''), 1,
                instr(coalesce(live.error_text, ended.error_text, failure.text, '') || char(10), char(10)) - 1
            )
        ), json_object('errors', json(failure.errors)))
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
        result.created_at,
        failure.created_at
    ) AS ended_at
FROM compute_jobs AS request
LEFT JOIN compute_results AS result ON result.job_id = request.id
LEFT JOIN compute_failures AS failure ON failure.job_id = request.id
LEFT JOIN jobs AS live ON live.id = request.id
LEFT JOIN history AS ended ON ended.id = request.id;
