-- name: get
-- In the scope of a tenant, a job of another one costs what a missing one costs.
SELECT {job}, lease_owner, lease_expires_at, {due_time} AS run_at
FROM (SELECT value AS wanted FROM json_each(:ids)) CROSS JOIN jobs ON id = wanted
WHERE :tenant IS NULL OR coalesce(tenant, 'default') = :tenant
UNION ALL
-- Workers of older versions ended parked jobs without their due time.
SELECT {job}, NULL, NULL, CASE run_at WHEN 9223372036854775807 THEN created_at ELSE run_at END
FROM (SELECT value AS wanted FROM json_each(:ids)) CROSS JOIN history ON id = wanted
WHERE :tenant IS NULL OR coalesce(tenant, 'default') = :tenant

-- name: attempts
-- A successful attempt has no row of its own: that of its job tells all.
SELECT {attempt} FROM attempts WHERE job_id = :id
UNION ALL
SELECT id, fence - 1, attempt, 'succeeded', worker, started_at, finished_at, NULL, NULL
FROM history WHERE id = :id AND state = 'succeeded'
ORDER BY fence

-- A list follows one index of each table; `page_edge` finds where a step ends.

-- name: page_live
SELECT id FROM jobs WHERE id < :after

-- name: page_leftovers
SELECT id FROM jobs INDEXED BY jobs_leftovers WHERE finished_at IS NOT NULL AND id < :after

-- name: page_history
SELECT id FROM history WHERE id < :after

-- name: page_unsuccessful
SELECT id FROM history INDEXED BY history_unsuccessful WHERE state <> 'succeeded' AND id < :after

-- name: page_tenant
SELECT id FROM history INDEXED BY history_tenant WHERE tenant = :tenant AND id < :after

-- name: page_correlation
SELECT id FROM history INDEXED BY history_correlation
WHERE correlation_id = :correlation_id AND id < :after

-- name: page_parent
SELECT id FROM history INDEXED BY history_parent WHERE parent_id = :parent_id AND id < :after

-- name: page_edge
ORDER BY id DESC LIMIT 1 OFFSET :look - 1

-- name: page_edge_tenant
    -- What others have must not end the look.
    AND coalesce(tenant, 'default') = :tenant
ORDER BY id DESC LIMIT 1 OFFSET :look - 1

-- name: page_matching
    AND id >= :edge
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:queue IS NULL OR queue = :queue)
    AND (:name IS NULL OR name = :name)
    AND (:tenant IS NULL OR coalesce(tenant, 'default') = :tenant)
    AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
    AND (:parent_id IS NULL OR parent_id = :parent_id)
    AND (:error_code IS NULL OR error_code = :error_code)
    AND (:since IS NULL OR coalesce(finished_at, created_at) >= :since)
    AND (:until IS NULL OR coalesce(finished_at, created_at) < :until)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
ORDER BY id DESC LIMIT :limit

-- name: requeued
SELECT job_id, new_id FROM json_each(:ids) CROSS JOIN requeues ON job_id = value

-- name: changed
SELECT {status}, fence, {due_time} AS run_at
FROM (SELECT value AS wanted FROM json_each(:ids)) CROSS JOIN jobs ON id = wanted
WHERE :tenant IS NULL OR coalesce(tenant, 'default') = :tenant
UNION ALL
SELECT {status}, fence, run_at
FROM (SELECT value AS wanted FROM json_each(:ids)) CROSS JOIN history ON id = wanted
WHERE :tenant IS NULL OR coalesce(tenant, 'default') = :tenant

-- name: counts
SELECT queue, state, sum(jobs) FROM (
    SELECT queue, 'queued' AS state, count(*) AS jobs FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' GROUP BY queue
    UNION ALL
    SELECT queue, 'running', count(*) FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' GROUP BY queue
    UNION ALL
    SELECT queue, state, count(*) FROM jobs INDEXED BY jobs_leftovers
    WHERE finished_at IS NOT NULL GROUP BY queue, state
    UNION ALL
    SELECT queue, state, jobs FROM history_counts
)
GROUP BY queue, state ORDER BY queue, state

-- name: counts_tenant
SELECT queue, state, sum(jobs) FROM (
    SELECT queue, state, count(*) AS jobs FROM jobs WHERE coalesce(tenant, 'default') = :tenant
    GROUP BY queue, state
    UNION ALL
    SELECT queue, state, jobs FROM history_counts
    WHERE coalesce(nullif(tenant, ''), 'default') = :tenant
)
GROUP BY queue, state ORDER BY queue, state

-- name: counts_waiting
WITH RECURSIVE names (queue) AS (
    SELECT min(queue) FROM jobs INDEXED BY jobs_due WHERE state = 'queued'
    UNION ALL
    SELECT (
        SELECT min(queue) FROM jobs INDEXED BY jobs_due
        WHERE state = 'queued' AND jobs.queue > names.queue
    )
    FROM names WHERE queue IS NOT NULL
)
SELECT
    queue, 'queued', (
        SELECT count(*) FROM (
            SELECT 1 FROM jobs INDEXED BY jobs_due
            WHERE state = 'queued' AND jobs.queue = names.queue LIMIT :look_max + 1
        )
    ), 0
FROM names WHERE queue IS NOT NULL

-- name: counts_waiting_tenant
-- No index leads to the jobs of a tenant.
WITH looked_at AS MATERIALIZED (
    SELECT queue, tenant FROM jobs INDEXED BY jobs_due WHERE state = 'queued' LIMIT :look_max + 1
)
SELECT
    queue, 'queued', sum(coalesce(tenant, 'default') = :tenant),
    (SELECT count(*) FROM looked_at) > :look_max
FROM looked_at GROUP BY queue

-- name: counts_running
SELECT queue, 'running', count(*), 0 FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND (:tenant IS NULL OR coalesce(tenant, 'default') = :tenant)
GROUP BY queue

-- name: counts_ended
SELECT queue, state, sum(jobs), 0 FROM (
    SELECT queue, state, 1 AS jobs FROM jobs INDEXED BY jobs_leftovers
    WHERE finished_at IS NOT NULL
        AND (:tenant IS NULL OR coalesce(tenant, 'default') = :tenant)
    UNION ALL
    SELECT queue, state, jobs FROM history_counts
    WHERE :tenant IS NULL OR coalesce(nullif(tenant, ''), 'default') = :tenant
)
GROUP BY queue, state

-- name: suspects
SELECT count(*) FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_suspects
    WHERE suspect = 1 AND state = 'queued' AND run_at <= :now AND {known}
        AND queue NOT IN (
            SELECT queues.name FROM queues
            WHERE paused_at IS NOT NULL OR running_max <= (
                SELECT count(*) FROM jobs AS runs INDEXED BY jobs_leased
                WHERE runs.state = 'running' AND runs.queue = queues.name
            )
        )
    LIMIT :limit
)

-- name: awaited
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_leased WHERE state = 'running' AND {known}
) OR EXISTS (
    SELECT 1 FROM lanes CROSS JOIN jobs INDEXED BY jobs_due
        ON jobs.state = 'queued' AND jobs.queue = lanes.queue AND jobs.priority = lanes.priority
    WHERE lanes.run_at <= :until AND jobs.run_at <= :until
        AND jobs.name IN (SELECT value FROM json_each(:names))
        AND (:queues IS NULL OR lanes.queue IN (SELECT value FROM json_each(:queues)))
        AND lanes.queue NOT IN {stopped}
) OR EXISTS (
    SELECT 1 FROM breakers INDEXED BY breakers_holding CROSS JOIN jobs INDEXED BY jobs_breaker
        ON jobs.breaker = breakers.key AND jobs.run_at = 9223372036854775807
    WHERE (opened_at IS NOT NULL OR letting_go) AND (letting_go OR next_probe_at <= :until)
        AND jobs.state = 'queued' AND {known} AND queue NOT IN {stopped}
)

-- name: unknown_names
SELECT jobs.name FROM lanes CROSS JOIN jobs INDEXED BY jobs_due
    ON jobs.state = 'queued' AND jobs.queue = lanes.queue AND jobs.priority = lanes.priority
WHERE lanes.run_at <= :now AND jobs.run_at <= :now
    AND (:queues IS NULL OR lanes.queue IN (SELECT value FROM json_each(:queues)))
LIMIT :limit

-- name: ended_counts
SELECT queue, state, sum(jobs) FROM history_counts GROUP BY queue, state HAVING sum(jobs) > 0

-- name: newest_ended
-- Ids follow the time, so the newest ended jobs ended recently, or were urgent.
SELECT queue, (started_at - run_at) / 1e6, (finished_at - started_at) / 1e6
FROM (
    SELECT
        queue, state, max(min(run_at, :now), 0) AS run_at,
        max(min(started_at, :now), 0) AS started_at, max(min(finished_at, :now), 0) AS finished_at
    FROM history ORDER BY id DESC LIMIT :limit
)
WHERE started_at IS NOT NULL AND state <> 'canceled'

-- name: ended_last
SELECT queue, state, count(*)
FROM (SELECT queue, state, finished_at FROM history ORDER BY id DESC LIMIT :limit)
WHERE finished_at > :since
GROUP BY queue, state
