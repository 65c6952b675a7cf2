-- name: reclaim
SELECT *
FROM holdfast.reclaim(
    NULL, NULL, :back_seconds::float8, :limit::integer, :outcome::text, :error_code::text,
    :reason::text, :crashes_in_company_max::integer, :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: reclaim_worker
SELECT *
FROM holdfast.reclaim(
    NULL, :dead_worker::text, NULL, :limit::integer, :outcome::text, :error_code::text,
    :reason::text, :crashes_in_company_max::integer, :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: reclaim_one
SELECT *
FROM holdfast.reclaim(
    :job_id::uuid, :dead_worker::text, NULL, 1, :outcome::text, :error_code::text,
    :reason::text, :crashes_in_company_max::integer, :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: reclaimable
(
    SELECT id FROM holdfast.jobs
    WHERE state = 'running'
        AND CASE
            WHEN :dead_worker::text IS NULL THEN lease_expires_at < now()
            ELSE lease_owner = :dead_worker
        END
    ORDER BY lease_expires_at LIMIT :limit
)
UNION ALL
(
    SELECT id FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
        AND :dead_worker IS NULL
    ORDER BY expires_at LIMIT :limit
)
