-- The engine leaves out the name of the tenant `default`.
CREATE OR REPLACE VIEW holdfast.passport_jobs AS
SELECT
    id AS job_id,
    coalesce(tenant, 'default') AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    arguments -> 'payload' AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    run_at AS scheduled_at,
    lease_owner,
    lease_expires_at,
    started_at,
    finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_build_object(
        'code',
        CASE error_code
            WHEN 'BAD_ARGUMENTS' THEN 'VALIDATION_ERROR'
            WHEN 'StoreUnavailable' THEN 'DB_UNAVAILABLE'
            ELSE error_code
        END,
        'text', error_text
    ) END AS last_error
FROM (
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        lease_owner, lease_expires_at, started_at, finished_at, error_code, error_text
    FROM holdfast.jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM holdfast.history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK'
);
