-- A request without a tenant belongs to the tenant `default`, as its job does.
DROP VIEW holdfast.job;

ALTER TABLE holdfast.compute_jobs
    ALTER COLUMN tenant_id TYPE text COLLATE "C" USING coalesce(tenant_id::text, 'default'),
    ALTER COLUMN tenant_id SET NOT NULL,
    ALTER COLUMN tenant_id SET DEFAULT 'default';

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
