-- Times of the history are microseconds; those of these tables are texts.

-- name: uncounted_failures
-- The next dead and failed jobs by their end that no group counts.
SELECT
    id AS job_id, name, queue, state, error_code, coalesce(tenant, 'default') AS tenant,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000) AS ended_at,
    coalesce(
        strftime('%Y-%m-%dT%H:%M:%S', kept_until / 1000000, 'unixepoch')
        || printf('.%06dZ', kept_until % 1000000),
        '9999-12-30T00:00:00.000000Z'
    ) AS kept_until,
    (SELECT app_version FROM workers WHERE workers.id = uncounted.worker) AS version, error_text
FROM (
    SELECT * FROM history INDEXED BY history_failures
    WHERE state IN ('dead', 'failed')
        AND (finished_at, id) > (
            CAST(strftime('%s', substr(:ended_at, 1, 19)) AS INTEGER) * 1000000
            + CAST(substr(:ended_at, 21, 6) AS INTEGER),
            :job_id
        )
        AND finished_at <= CAST(strftime('%s', substr(now(), 1, 19)) AS INTEGER) * 1000000
            + CAST(substr(now(), 21, 6) AS INTEGER)
        AND kept_until > CAST(strftime('%s', substr(now(), 1, 19)) AS INTEGER) * 1000000
        AND NOT EXISTS (
            SELECT 1 FROM error_group_jobs WHERE error_group_jobs.job_id = history.id
        )
    ORDER BY finished_at, id LIMIT :look_max
) AS uncounted
ORDER BY finished_at, id

-- name: failures_after
-- One step looks at the next `look_max` jobs. It returns those that no group counts, and the last
-- one, where the next step starts.
SELECT
    id AS job_id, name, queue, state, error_code, coalesce(tenant, 'default') AS tenant,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000) AS ended_at,
    coalesce(
        strftime('%Y-%m-%dT%H:%M:%S', kept_until / 1000000, 'unixepoch')
        || printf('.%06dZ', kept_until % 1000000),
        '9999-12-30T00:00:00.000000Z'
    ) AS kept_until,
    (SELECT app_version FROM workers WHERE workers.id = looked_at.worker) AS version,
    is_counted, is_last, CASE WHEN NOT is_counted THEN error_text END AS error_text
FROM (
    SELECT
        *, row_number() OVER (ORDER BY finished_at, id) = :look_max AS is_last,
        EXISTS (
            SELECT 1 FROM error_group_jobs WHERE error_group_jobs.job_id = next.id
        ) AS is_counted
    FROM (
        SELECT * FROM history INDEXED BY history_failures
        WHERE state IN ('dead', 'failed')
            AND (finished_at, id) > (
                CAST(strftime('%s', substr(:ended_at, 1, 19)) AS INTEGER) * 1000000
                + CAST(substr(:ended_at, 21, 6) AS INTEGER),
                :job_id
            )
            AND finished_at <= CAST(strftime('%s', substr(now(), 1, 19)) AS INTEGER) * 1000000
                + CAST(substr(now(), 21, 6) AS INTEGER)
        ORDER BY finished_at, id LIMIT :look_max
    ) AS next
) AS looked_at
WHERE is_last OR NOT is_counted
ORDER BY finished_at, id

-- name: oldest_uncounted_failure
SELECT
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
    || printf('.%06dZ', finished_at % 1000000) AS ended_at
FROM history INDEXED BY history_failures
WHERE state IN ('dead', 'failed')
    AND (finished_at, id) > (
        CAST(strftime('%s', substr(:ended_at, 1, 19)) AS INTEGER) * 1000000
        + CAST(substr(:ended_at, 21, 6) AS INTEGER),
        :job_id
    )
    AND finished_at <= 1000000
        * (CAST(strftime('%s', substr(now(), 1, 19)) AS INTEGER) - :seconds)
    AND kept_until > 1000000 * CAST(strftime('%s', substr(now(), 1, 19)) AS INTEGER)
    AND NOT EXISTS (
        SELECT 1 FROM error_group_jobs WHERE error_group_jobs.job_id = history.id
    )
ORDER BY finished_at, id LIMIT 1

-- name: insert_error_group_jobs
INSERT INTO error_group_jobs (
    job_id, tenant, fingerprint, state, queue, ended_at, kept_until
)
SELECT
    value ->> 'job_id', value ->> 'tenant', value ->> 'fingerprint', value ->> 'state',
    value ->> 'queue', value ->> 'ended_at', value ->> 'kept_until'
FROM json_each(:jobs)
WHERE value ->> 'kept_until' > now()
ON CONFLICT (job_id) DO NOTHING
RETURNING job_id

-- name: locked_error_groups
-- A transaction that writes has locked the file.
SELECT
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in
FROM error_groups
WHERE (tenant, fingerprint) IN (
    SELECT value ->> 'tenant', value ->> 'fingerprint' FROM json_each(:keys)
)
ORDER BY tenant, fingerprint

-- name: save_error_groups
INSERT INTO error_groups (
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in
)
SELECT
    value ->> 'tenant', value ->> 'fingerprint', value ->> 'name', value ->> 'error_code',
    value ->> 'shape', value ->> 'jobs', value ->> 'jobs_ever', value ->> 'first_seen',
    value ->> 'last_seen', value ->> 'example_id', value ->> 'queues', value ->> 'state',
    value ->> 'state_since', value ->> 'state_by', value ->> 'note', value ->> 'resolved_in'
FROM json_each(:groups)
WHERE true
ON CONFLICT (tenant, fingerprint) DO UPDATE
SET jobs = excluded.jobs, jobs_ever = excluded.jobs_ever, first_seen = excluded.first_seen,
    last_seen = excluded.last_seen, example_id = excluded.example_id, queues = excluded.queues,
    state = excluded.state, state_since = excluded.state_since, state_by = excluded.state_by

-- name: find_error_groups
SELECT
    tenant, fingerprint, name, error_code, shape, jobs, jobs_ever, first_seen, last_seen,
    example_id, queues, state, state_since, state_by, note, resolved_in,
    (
        SELECT json_group_array(json_object('tenant', tenant, 'jobs', jobs))
        FROM (
            SELECT tenant, jobs FROM error_groups AS affected
            WHERE affected.fingerprint = known.fingerprint AND affected.jobs > 0
                AND affected.tenant <> '' AND known.tenant IN ('', affected.tenant)
            ORDER BY affected.jobs DESC LIMIT :tenants_max
        )
    ) AS tenants
FROM error_groups AS known
WHERE tenant = :tenant AND fingerprint IN (SELECT value FROM json_each(:fingerprints))

-- name: recent_error_groups
-- One step looks at the next `look_max` groups, and returns those that match and the last one.
SELECT fingerprint, is_match, is_last, place
FROM (
    SELECT
        fingerprint,
        CAST(strftime('%s', substr(last_seen, 1, 19)) AS INTEGER) * 1000000
            + CAST(substr(last_seen, 21, 6) AS INTEGER) AS place,
        row_number() OVER (ORDER BY last_seen DESC, fingerprint DESC) = :look_max AS is_last,
        (:state IS NULL OR state = :state)
        AND (:queue IS NULL OR EXISTS (SELECT 1 FROM json_each(queues) WHERE value = :queue))
        AND (:name IS NULL OR name = :name)
        AND (:code IS NULL OR error_code = :code)
        AND (
            :text IS NULL
            OR instr(
                lower(name || ' ' || coalesce(error_code, '') || ' ' || shape), lower(:text)
            ) > 0
        ) AS is_match
    FROM (
        SELECT * FROM error_groups INDEXED BY error_groups_recent
        WHERE tenant = :tenant
            AND (last_seen, fingerprint) < (
                strftime('%Y-%m-%dT%H:%M:%S', :place / 1000000, 'unixepoch')
                || printf('.%06dZ', :place % 1000000),
                :after
            )
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
        (:state IS NULL OR state = :state)
        AND (:queue IS NULL OR EXISTS (SELECT 1 FROM json_each(queues) WHERE value = :queue))
        AND (:name IS NULL OR name = :name)
        AND (:code IS NULL OR error_code = :code)
        AND (
            :text IS NULL
            OR instr(
                lower(name || ' ' || coalesce(error_code, '') || ' ' || shape), lower(:text)
            ) > 0
        ) AS is_match
    FROM (
        SELECT * FROM error_groups INDEXED BY error_groups_largest
        WHERE tenant = :tenant AND (jobs, fingerprint) < (:place, :after)
        ORDER BY jobs DESC, fingerprint DESC LIMIT :look_max
    ) AS looked_at
) AS judged
WHERE is_match OR is_last
ORDER BY place DESC, fingerprint DESC LIMIT :rows_max

-- name: forget_error_group_jobs
DELETE FROM error_group_jobs
WHERE job_id IN (
    SELECT job_id FROM error_group_jobs WHERE kept_until < in_seconds(-:after_seconds)
    ORDER BY kept_until LIMIT :rows_max
)
RETURNING tenant, fingerprint

-- name: forget_error_groups
DELETE FROM error_groups
WHERE (tenant, fingerprint) IN (
    SELECT tenant, fingerprint FROM error_groups
    WHERE jobs = 0 AND (state <> 'resolved' OR state_since < in_seconds(-:resolved_seconds))
    ORDER BY last_seen LIMIT :rows_max
)
