-- In every snapshot, a job is either live or in the history.

-- name: get
-- In the scope of a tenant, a job of another one costs what a missing one costs.
SELECT * FROM {every_job} AS job WHERE id = :job_id AND {of_tenant}

-- name: get_json
-- For a caller's connection: each driver reads types in its own way.
SELECT to_json(job)::text AS job FROM {every_job} AS job WHERE id = :job_id AND {of_tenant}

-- name: attempts
-- A successful attempt has no row of its own: that of its job tells all.
SELECT {attempt} FROM holdfast.attempts WHERE job_id = :job_id
UNION ALL
SELECT id, fence - 1, attempt, 'succeeded', worker, started_at, finished_at, NULL, NULL
FROM holdfast.history WHERE id = :job_id AND state = 'succeeded'
ORDER BY fence

-- name: page
-- One step looks at the next `look_max` jobs by descending id. It returns those that match, and the
-- last one, where the next step starts. The inner conditions have an index in that order; the outer
-- ones are checked job by job. Plan it for its values, so that absent conditions fall away.
SELECT *
FROM (
    SELECT
        *, row_number() OVER (ORDER BY id DESC) = :look_max AS is_last,
        (cardinality(:states::text[]) = 0 OR state = ANY (:states::text[]))
        AND (:queue::text IS NULL OR queue = :queue)
        AND (:name::text IS NULL OR name = :name)
        AND (:tenant::text IS NULL OR coalesce(tenant, 'default') = :tenant)
        AND (:tag::text IS NULL OR :tag = ANY (tags))
        AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
        AND (:parent_id::uuid IS NULL OR parent_id = :parent_id)
        AND (:error_code::text IS NULL OR error_code = :error_code)
        AND (:since::timestamptz IS NULL OR coalesce(finished_at, created_at) >= :since)
        AND (:until::timestamptz IS NULL OR coalesce(finished_at, created_at) < :until)
        AS is_match
    FROM (
        SELECT *
        FROM {every_job} AS job
        WHERE (:after::uuid IS NULL OR id < :after)
            AND (:look_by::text <> 'tenant' OR tenant = :tenant)
            AND (:look_by::text <> 'correlation' OR correlation_id = :correlation_id)
            AND (:look_by::text <> 'parent' OR parent_id = :parent_id)
            -- What others have must not end the look.
            AND (:look_by::text NOT IN ('correlation', 'parent') OR {of_tenant})
            AND (:look_by::text <> 'running' OR state = 'running')
            AND (:look_by::text <> 'unsuccessful' OR state IN ('failed', 'dead', 'canceled'))
            AND (:look_in::text <> 'live' OR NOT in_history)
            AND (:look_in::text <> 'ended' OR finished_at IS NOT NULL)
        ORDER BY id DESC LIMIT :look_max
    ) AS looked_at
) AS judged
WHERE is_match OR is_last
ORDER BY id DESC LIMIT :limit

-- name: requeued
SELECT job_id, new_id FROM holdfast.requeues WHERE job_id = ANY (:ids::uuid[])

-- name: changed
-- Only jobs that are no longer live are looked up in the partitions of the history.
WITH live AS MATERIALIZED (
    SELECT
        {status},
        CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END AS run_at,
        {version} AS version
    FROM holdfast.jobs WHERE id = ANY (:ids::uuid[]) AND {of_tenant}
),
found AS (
    SELECT * FROM live
    UNION ALL
    SELECT {status}, run_at, {version} FROM holdfast.history
    WHERE id = ANY (ARRAY(SELECT unnest(:ids::uuid[]) EXCEPT SELECT id FROM live)) AND {of_tenant}
)
SELECT wanted.id AS job_id, found.*
FROM unnest(:ids::uuid[], :versions::text[]) AS wanted (id, version)
LEFT JOIN found ON found.id = wanted.id
WHERE found.version IS DISTINCT FROM wanted.version

-- name: counts
SELECT queue, state, sum(jobs)::bigint AS jobs
FROM (
    SELECT queue, state, count(*) AS jobs FROM holdfast.jobs
    WHERE :tenant::text IS NULL OR tenant = :tenant OR :tenant = 'default' AND tenant IS NULL
    GROUP BY queue, state
    UNION ALL
    SELECT queue, state, jobs FROM holdfast.history_counts
    WHERE :tenant IS NULL OR coalesce(nullif(tenant, ''), 'default') = :tenant
) AS counted
GROUP BY queue, state
HAVING sum(jobs) > 0
ORDER BY queue, state

-- name: counts_waiting
WITH RECURSIVE names AS (
    (SELECT queue FROM holdfast.jobs WHERE state = 'queued' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queue FROM holdfast.jobs
        WHERE state = 'queued' AND queue > names.queue ORDER BY queue LIMIT 1
    )
    FROM names WHERE names.queue IS NOT NULL
)
SELECT queue, 'queued' AS state, jobs, false AS is_capped
FROM names
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.queue = names.queue LIMIT :look_max + 1
    ) AS looked_at
) AS counted
WHERE queue IS NOT NULL

-- name: counts_waiting_tenant
-- No index leads to the jobs of the tenant `default`.
WITH looked_at AS MATERIALIZED (
    SELECT queue, tenant FROM holdfast.jobs
    WHERE state = 'queued' AND (:tenant::text = 'default' OR tenant = :tenant)
    LIMIT :look_max + 1
)
SELECT
    queue, 'queued' AS state,
    count(*) FILTER (WHERE coalesce(tenant, 'default') = :tenant) AS jobs,
    (SELECT count(*) FROM looked_at) > :look_max AS is_capped
FROM looked_at GROUP BY queue

-- name: counts_running
SELECT queue, 'running' AS state, count(*) AS jobs, false AS is_capped FROM holdfast.jobs
WHERE state = 'running' AND (:tenant::text IS NULL OR coalesce(tenant, 'default') = :tenant)
GROUP BY queue

-- name: counts_ended
SELECT queue, state, sum(jobs)::bigint AS jobs, false AS is_capped
FROM (
    SELECT queue, state, 1 AS jobs FROM holdfast.jobs
    WHERE finished_at IS NOT NULL
        AND (:tenant::text IS NULL OR coalesce(tenant, 'default') = :tenant)
    UNION ALL
    SELECT queue, state, jobs FROM holdfast.history_counts
    WHERE :tenant::text IS NULL OR coalesce(nullif(tenant, ''), 'default') = :tenant
) AS counted
GROUP BY queue, state

-- name: suspects
SELECT count(*)
FROM (
    SELECT FROM holdfast.jobs
    WHERE suspect AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND (:queues::text[] IS NULL OR queue = ANY (:queues))
        AND queue <> ALL (ARRAY(
            SELECT name FROM holdfast.queues
            WHERE paused_at IS NOT NULL OR running_max <= (
                SELECT count(*) FROM holdfast.jobs AS runs
                WHERE runs.state = 'running' AND runs.queue = queues.name
            )
        ))
    LIMIT :limit
) AS waiting

-- name: awaited
WITH RECURSIVE {lanes}
SELECT
    EXISTS (
        SELECT FROM holdfast.jobs
        WHERE state = 'running' AND name = ANY (:names::text[])
            AND (:queues::text[] IS NULL OR queue = ANY (:queues))
    )
    OR EXISTS (
        SELECT
        FROM (
            SELECT queue, priority FROM lane
            WHERE run_at <= now() + make_interval(secs => :within_seconds)
                AND queue <> ALL {stopped}
        ) AS near
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs
            WHERE state = 'queued' AND queue = near.queue AND priority = near.priority
                AND run_at <= now() + make_interval(secs => :within_seconds)
                AND name = ANY (:names::text[])
                AND (
                    breaker IS NULL OR suspect
                    OR (
                        SELECT
                            opened_at IS NOT NULL AND coalesce(
                                next_probe_at > now() + make_interval(secs => :within_seconds),
                                true
                            )
                        FROM holdfast.breakers WHERE key = jobs.breaker
                    ) IS NOT TRUE
                )
            ORDER BY run_at, id LIMIT 1
        ) AS job
    )
    OR EXISTS (
        SELECT
        FROM (
            SELECT key FROM holdfast.breakers
            WHERE (opened_at IS NOT NULL OR letting_go) AND (
                letting_go OR next_probe_at <= now() + make_interval(secs => :within_seconds)
            )
        ) AS near
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs
            WHERE state = 'queued' AND breaker = near.key AND run_at = 'infinity'
                AND held_run_at <= now() + make_interval(secs => :within_seconds)
                AND name = ANY (:names) AND (:queues IS NULL OR queue = ANY (:queues))
                AND queue <> ALL {stopped}
            ORDER BY run_at, id LIMIT 1
        ) AS job
    )

-- name: unknown_names
WITH RECURSIVE {lanes}
SELECT DISTINCT name
FROM (
    SELECT job.name
    FROM (SELECT queue, priority FROM lane WHERE run_at <= now()) AS due
    CROSS JOIN LATERAL (
        SELECT name FROM holdfast.jobs
        WHERE state = 'queued' AND queue = due.queue AND priority = due.priority
            AND run_at <= now()
        ORDER BY run_at, id LIMIT 200
    ) AS job
    LIMIT 2000
) AS looked_at
WHERE name <> ALL (:names::text[])
ORDER BY name

-- name: now
SELECT now() AS now

-- name: ended_counts
SELECT queue, state, sum(jobs)::bigint AS jobs FROM holdfast.history_counts
GROUP BY queue, state
HAVING sum(jobs) > 0

-- name: newest_ended
-- Other programs may have written infinity, which can't be subtracted.
-- Ids follow the time, so the newest ended jobs ended recently, or were urgent.
SELECT
    queue,
    extract(
        epoch FROM greatest(least(started_at, now()), 'epoch')
        - greatest(least(run_at, now()), 'epoch')
    )::float8 AS waited_seconds,
    extract(
        epoch FROM greatest(least(finished_at, now()), 'epoch')
        - greatest(least(started_at, now()), 'epoch')
    )::float8 AS ran_seconds
FROM (
    SELECT queue, state, run_at, started_at, finished_at FROM holdfast.history
    ORDER BY id DESC LIMIT :limit
) AS newest
WHERE started_at IS NOT NULL AND state <> 'canceled'

-- name: ended_last
SELECT queue, state, count(*) AS jobs
FROM (
    SELECT queue, state, finished_at FROM holdfast.history ORDER BY id DESC LIMIT :limit
) AS newest
WHERE finished_at > now() - make_interval(secs => :seconds)
GROUP BY queue, state

-- name: standby
SELECT pg_is_in_recovery() AS is_standby
