-- Each claim finds due jobs; `lease` leases them in the same transaction.

-- name: lanes
SELECT queue, priority FROM lanes WHERE run_at <= :now

-- name: claim
SELECT json_group_array(json_array(number, {due}))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued' AND queue = :queue AND priority = :priority AND run_at <= :now
        AND name IN (SELECT value FROM json_each(:names)) AND suspect = 0
        AND {of_tenant} AND {breaker_closed}
    ORDER BY run_at, id LIMIT :limit
)

-- name: claim_suspect
SELECT json_group_array(json_array(number, {due}))
FROM (
    SELECT rowid AS number, * FROM jobs INDEXED BY jobs_suspects
    WHERE suspect = 1 AND state = 'queued' AND run_at <= :now AND {known} AND {of_tenant}
        AND queue NOT IN (SELECT value FROM json_each(:except_queues))
    ORDER BY priority, run_at, id LIMIT 1
)

-- name: claim_by_id
SELECT json_group_array(json_array(rowid, {due})) FROM jobs
WHERE id = :id AND state = 'queued' AND suspect = 0 AND run_at <= :now AND {breaker_closed}
    AND NOT EXISTS (
        SELECT 1 FROM queues WHERE queues.name = jobs.queue AND paused_at IS NOT NULL
    )

-- name: claim_probes
-- For each breaker, one of the jobs that started least often: drawn by lot or, every other time,
-- the newest, if it is among the last `look_max`.
WITH drawn AS (
    SELECT breakers.key, breakers.probes, (
        SELECT parked.rowid FROM jobs AS parked INDEXED BY jobs_parked
        WHERE parked.breaker = breakers.key AND parked.run_at = 9223372036854775807
            AND {sendable}
        ORDER BY parked.fence, substr(parked.id, 29), parked.id LIMIT 1
    ) AS number
    FROM breakers INDEXED BY breakers_holding
    WHERE breakers.opened_at IS NOT NULL AND breakers.next_probe_at <= :now
),
chosen AS (
    SELECT coalesce(
        (
            SELECT parked.number
            FROM (
                SELECT rowid AS number, state, queue, name, tenant, fence, held_run_at
                FROM jobs INDEXED BY jobs_breaker
                WHERE breaker = drawn.key AND run_at = 9223372036854775807
                ORDER BY run_at DESC, id DESC LIMIT :look_max
            ) AS parked
            WHERE drawn.probes % 2 = 0
                AND parked.fence = (SELECT fence FROM jobs WHERE rowid = drawn.number)
                AND {sendable}
            LIMIT 1
        ),
        drawn.number
    ) AS number
    FROM drawn WHERE drawn.number IS NOT NULL
    LIMIT :limit
)
SELECT json_group_array(json_array(number, {due}, probes))
FROM chosen CROSS JOIN jobs ON jobs.rowid = number

-- name: lease
UPDATE jobs SET
    state = 'running', attempt = attempt + 1, fence = fence + 1, lease_owner = :worker,
    lease_expires_at = :lease_expires_at, started_at = :now, alone = :alone
FROM json_each(:numbers) AS due
WHERE jobs.rowid = due.value
