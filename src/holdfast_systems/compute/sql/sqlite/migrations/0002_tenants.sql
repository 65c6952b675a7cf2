-- A request without a tenant belongs to the tenant `default`, as its job does. SQLite can't alter a
-- column, so replace it.
DROP VIEW job;

ALTER TABLE compute_jobs ADD COLUMN any_tenant TEXT NOT NULL DEFAULT 'default';
UPDATE compute_jobs SET any_tenant = tenant_id WHERE tenant_id IS NOT NULL;
ALTER TABLE compute_jobs DROP COLUMN tenant_id;
ALTER TABLE compute_jobs RENAME COLUMN any_tenant TO tenant_id;

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
