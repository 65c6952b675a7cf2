-- name: uncounted_failures
-- The next dead and failed jobs by their end that no group counts.
SELECT
    id AS job_id, finished_at AS ended_at, kept_until, name, queue, state, error_code, error_text,
    coalesce(tenant, 'default') AS tenant,
    (SELECT app_version FROM holdfast.workers WHERE workers.id = uncounted.worker) AS version
FROM (
    SELECT * FROM holdfast.history
    WHERE state IN ('dead', 'failed') AND (finished_at, id) > (:ended_at, :job_id)
        AND finished_at <= now() AND kept_until > now()
        AND NOT EXISTS (
            SELECT FROM holdfast.error_group_jobs WHERE error_group_jobs.job_id = history.id
        )
    ORDER BY finished_at, id LIMIT :look_max
) AS uncounted
ORDER BY finished_at, id

-- name: failures_after
-- One step looks at the next `look_max` jobs. It returns those that no group counts, and the last
-- one, where the next step starts.
SELECT
    id AS job_id, finished_at AS ended_at, kept_until, name, queue, state, error_code,
    coalesce(tenant, 'default') AS tenant,
    (SELECT app_version FROM holdfast.workers WHERE workers.id = looked_at.worker) AS version,
    is_counted, is_last,
    CASE WHEN NOT is_counted THEN error_text END AS error_text
FROM (
    SELECT
        *, row_number() OVER (ORDER BY finished_at, id) = :look_max AS is_last,
        EXISTS (
            SELECT FROM holdfast.error_group_jobs WHERE error_group_jobs.job_id = next.id
        ) AS is_counted
    FROM (
        SELECT * FROM holdfast.history
        WHERE state IN ('dead', 'failed') AND (finished_at, id) > (:ended_at, :job_id)
            AND finished_at <= now()
        ORDER BY finished_at, id LIMIT :look_max
    ) AS next
) AS looked_at
WHERE is_last OR NOT is_counted
ORDER BY finished_at, id

-- name: oldest_uncounted_failure
SELECT finished_at AS ended_at FROM holdfast.history
WHERE state IN ('dead', 'failed') AND (finished_at, id) > (:ended_at, :job_id)
    AND finished_at <= now() - make_interval(secs => :seconds) AND kept_until > now()
    AND NOT EXISTS (
        SELECT FROM holdfast.error_group_jobs WHERE error_group_jobs.job_id = history.id
    )
ORDER BY finished_at, id LIMIT 1

-- name: insert_error_group_jobs
INSERT INTO holdfast.error_group_jobs (
    job_id, tenant, fingerprint, state, queue, ended_at, kept_until
)
SELECT job_id, tenant, fingerprint, state, queue, ended_at, kept_until
FROM json_to_recordset(:jobs::json) AS given (
    job_id uuid, tenant text, fingerprint text, state text, queue text, ended_at timestamptz,
    kept_until timestamptz
)
WHERE kept_until > now()
ON CONFLICT (job_id) DO NOTHING
RETURNING job_id

-- name: locked_error_groups
SELECT
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in
FROM holdfast.error_groups
WHERE (tenant, fingerprint) IN (
    SELECT tenant, fingerprint
    FROM json_to_recordset(:keys::json) AS given (tenant text, fingerprint text)
)
ORDER BY tenant, fingerprint
FOR UPDATE

-- name: save_error_groups
INSERT INTO holdfast.error_groups (
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in
)
SELECT
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in
FROM json_to_recordset(:groups::json) AS given (
    tenant text, fingerprint text, name text, error_code text, shape text, jobs bigint,
    jobs_ever bigint, first_seen timestamptz, last_seen timestamptz, example_id uuid, queues text,
    state text, state_since timestamptz, state_by text, note text, resolved_in text
)
ON CONFLICT (tenant, fingerprint) DO UPDATE
SET jobs = excluded.jobs, jobs_ever = excluded.jobs_ever, first_seen = excluded.first_seen,
    last_seen = excluded.last_seen, example_id = excluded.example_id, queues = excluded.queues,
    state = excluded.state, state_since = excluded.state_since, state_by = excluded.state_by

-- name: find_error_groups
SELECT
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in,
    (
        SELECT coalesce(json_agg(json_build_object('tenant', tenant, 'jobs', jobs)), '[]')::text
        FROM (
            SELECT tenant, jobs FROM holdfast.error_groups AS affected
            WHERE affected.fingerprint = known.fingerprint AND affected.jobs > 0
                AND affected.tenant <> '' AND known.tenant IN ('', affected.tenant)
            ORDER BY affected.jobs DESC LIMIT :tenants_max
        ) AS largest
    ) AS tenants
FROM holdfast.error_groups AS known
WHERE tenant = :tenant AND fingerprint IN (
    SELECT json_array_elements_text(:fingerprints::json)
)

-- name: recent_error_groups
-- One step looks at the next `look_max` groups, and returns those that match and the last one.
SELECT fingerprint, is_match, is_last, place
FROM (
    SELECT
        fingerprint, floor(extract(epoch FROM last_seen) * 1000000)::bigint AS place,
        row_number() OVER (ORDER BY last_seen DESC, fingerprint DESC) = :look_max AS is_last,
        (:state::text IS NULL OR state = :state)
        AND (:queue::text IS NULL OR queues::jsonb ? :queue)
        AND (:name::text IS NULL OR name = :name)
        AND (:code::text IS NULL OR error_code = :code)
        AND (
            :text::text IS NULL
            OR strpos(lower(concat_ws(' ', name, error_code, shape)), lower(:text)) > 0
        ) AS is_match
    FROM (
        SELECT * FROM holdfast.error_groups
        WHERE tenant = :tenant
            AND (last_seen, fingerprint)
                < ('epoch'::timestamptz + :place::float8 * interval '1 microsecond', :after)
        ORDER BY last_seen DESC, fingerprint DESC LIMIT :look_max
    ) AS looked_at
) AS judged
WHERE is_match OR is_last
ORDER BY place DESC, fingerprint DESC LIMIT :rows_max

-- name: largest_error_groups
SELECT fingerprint, is_match, is_last, place
FROM (
    SELECT
        fingerprint, jobs AS place,
        row_number() OVER (ORDER BY jobs DESC, fingerprint DESC) = :look_max AS is_last,
        (:state::text IS NULL OR state = :state)
        AND (:queue::text IS NULL OR queues::jsonb ? :queue)
        AND (:name::text IS NULL OR name = :name)
        AND (:code::text IS NULL OR error_code = :code)
        AND (
            :text::text IS NULL
            OR strpos(lower(concat_ws(' ', name, error_code, shape)), lower(:text)) > 0
        ) AS is_match
    FROM (
        SELECT * FROM holdfast.error_groups
        WHERE tenant = :tenant AND (jobs, fingerprint) < (:place::bigint, :after)
        ORDER BY jobs DESC, fingerprint DESC LIMIT :look_max
    ) AS looked_at
) AS judged
WHERE is_match OR is_last
ORDER BY place DESC, fingerprint DESC LIMIT :rows_max

-- name: forget_error_group_jobs
SELECT tenant, fingerprint
FROM holdfast.forget_error_group_jobs(:after_seconds::float8, :rows_max::bigint)

-- name: forget_error_groups
SELECT FROM holdfast.forget_error_groups(:resolved_seconds::float8, :rows_max::bigint)
