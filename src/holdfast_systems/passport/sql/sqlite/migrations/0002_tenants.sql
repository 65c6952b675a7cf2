-- The engine leaves out the name of the tenant `default`.
DROP VIEW passport_jobs;

CREATE VIEW passport_jobs AS
SELECT
    id AS job_id,
    coalesce(tenant, 'default') AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    json_extract(arguments, '$.payload') AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    strftime('%Y-%m-%dT%H:%M:%S', run_at / 1000000, 'unixepoch')
        || printf('.%06dZ', run_at % 1000000) AS scheduled_at,
    lease_owner,
    strftime('%Y-%m-%dT%H:%M:%S', lease_expires_at / 1000000, 'unixepoch')
        || printf('.%06dZ', lease_expires_at % 1000000) AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch')
        || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_object(
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
    FROM jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK'
);
