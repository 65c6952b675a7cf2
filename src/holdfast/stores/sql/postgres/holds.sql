-- name: queues
SELECT
    coalesce(live.queue, said.name) AS name, coalesce(ready, 0) AS ready,
    coalesce(scheduled, 0) AS scheduled, coalesce(held, 0) AS held,
    coalesce(running, 0) AS running, oldest_ready_seconds, paused_at, paused_by, paused_because,
    running_max
FROM (
    SELECT
        queue,
        count(*) FILTER (WHERE state = 'queued' AND run_at <= now()) AS ready,
        count(*) FILTER (
            WHERE state = 'queued' AND run_at > now() AND run_at < 'infinity'
        ) AS scheduled,
        count(*) FILTER (WHERE state = 'queued' AND run_at = 'infinity') AS held,
        count(*) FILTER (WHERE state = 'running') AS running,
        extract(
            epoch FROM now() - min(greatest(run_at, 'epoch')) FILTER (
                WHERE state = 'queued' AND run_at <= now()
            )
        )::float8 AS oldest_ready_seconds
    FROM holdfast.jobs
    WHERE finished_at IS NULL
    GROUP BY queue
) AS live
FULL JOIN (
    SELECT *
    FROM holdfast.queues
    WHERE paused_at IS NOT NULL OR running_max IS NOT NULL
) AS said ON said.name = live.queue
ORDER BY 1

-- name: queue
SELECT
    name, paused_at, paused_by, paused_because, running_max,
    (SELECT count(*) FROM holdfast.jobs WHERE state = 'running' AND queue = said.name) AS running
FROM holdfast.queues AS said
WHERE name = :queue AND (paused_at IS NOT NULL OR running_max IS NOT NULL)

-- name: breakers
-- With a key, that one only.
SELECT
    key,
    (
        SELECT count(*)
        FROM unnest(failures) AS failed_at
        WHERE failed_at > now() - make_interval(secs => window_seconds)
    ) AS failures,
    opened_at, opened_by, opened_because, next_probe_at, letting_go, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM holdfast.jobs
            WHERE breaker = known.key AND state = 'queued' AND run_at = 'infinity'
            LIMIT :held_max
        ) AS counted
    ) AS held
FROM holdfast.breakers AS known
WHERE :key::text IS NULL OR key = :key
ORDER BY opened_at IS NULL, key
LIMIT :limit

-- name: pause
INSERT INTO holdfast.queues AS known (name, paused_at, paused_by, paused_because)
VALUES (:queue, now(), :by, :because)
ON CONFLICT (name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    paused_because = excluded.paused_because
WHERE known.paused_at IS NULL
RETURNING name

-- name: resume
WITH resumed AS (
    UPDATE holdfast.queues
    SET paused_at = NULL, paused_by = NULL, paused_because = NULL
    WHERE name = :queue AND paused_at IS NOT NULL
    RETURNING name
)
SELECT pg_notify('holdfast', 'q:' || name) FROM resumed

-- name: cap
WITH capped AS (
    INSERT INTO holdfast.queues (name, running_max)
    VALUES (:queue, :running_max)
    ON CONFLICT (name) DO UPDATE SET running_max = excluded.running_max
    RETURNING name
)
SELECT pg_notify('holdfast', 'q:' || name) FROM capped

-- name: caps
SELECT EXISTS (SELECT FROM holdfast.queues WHERE running_max IS NOT NULL)

-- name: strike
-- In the order of the keys, as all who lock several breakers.
SELECT
    key, holdfast.strike(key, failures_max, windows, probes, becauses, :wait_seconds) AS answers
FROM (
    SELECT
        key, array_agg(failures_max ORDER BY place) AS failures_max,
        array_agg(window_seconds ORDER BY place) AS windows,
        array_agg(probe_seconds ORDER BY place) AS probes,
        array_agg(because ORDER BY place) AS becauses
    FROM unnest(
        :keys::text[], :failures_max::integer[], :window_seconds::float8[],
        :probe_seconds::float8[], :becauses::text[]
    ) WITH ORDINALITY AS given (
        key, failures_max, window_seconds, probe_seconds, because, place
    )
    GROUP BY key
    ORDER BY key COLLATE "C"
    OFFSET 0
) AS struck

-- name: open_breaker
INSERT INTO holdfast.breakers AS known (
    key, window_seconds, probe_seconds, opened_at, opened_by, opened_because, times_opened
)
VALUES (:key, :window_seconds, :probe_seconds, now(), :by, :because, 1)
ON CONFLICT (key) DO UPDATE
SET opened_at = coalesce(known.opened_at, now()),
    opened_by = excluded.opened_by,
    opened_because = excluded.opened_because,
    next_probe_at = NULL,
    letting_go = false,
    times_opened = known.times_opened + (known.opened_at IS NULL)::integer,
    changed_at = now()

-- name: close_breaker
UPDATE holdfast.breakers
SET opened_at = NULL, opened_by = NULL, next_probe_at = NULL, probed_id = NULL, failures = '{}',
    letting_go = true, changed_at = now()
-- One that was opened by hand has no probes.
WHERE key = :key AND opened_at IS NOT NULL AND (:by_hand OR next_probe_at IS NOT NULL)
RETURNING key

-- name: lock_breaker
SELECT key FROM holdfast.breakers WHERE key = :key FOR UPDATE

-- name: forget_breaker
-- One that holds jobs is needed until they are let go; `end_letting_go` forgets it then.
WITH held AS MATERIALIZED (
    SELECT EXISTS (
        SELECT
        FROM holdfast.jobs
        WHERE breaker = :key AND state = 'queued' AND run_at = 'infinity'
            AND held_run_at IS NOT NULL
    ) AS any
),
forgotten AS (
    DELETE FROM holdfast.breakers WHERE key = :key AND NOT (SELECT held.any FROM held)
)
UPDATE holdfast.breakers
SET opened_at = NULL, opened_by = NULL, opened_because = NULL, next_probe_at = NULL,
    probed_id = NULL, failures = '{}', letting_go = true, times_opened = 0, changed_at = now()
WHERE key = :key AND (SELECT held.any FROM held)

-- name: lock_letting_go
SELECT key FROM holdfast.breakers WHERE letting_go ORDER BY key LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: let_go
WITH gone AS (
    UPDATE holdfast.jobs
    SET run_at = held_run_at, held_run_at = NULL
    WHERE id = ANY (ARRAY(
        SELECT job.id
        FROM unnest(:keys::text[]) AS closed (key)
        CROSS JOIN LATERAL (
            SELECT id
            FROM holdfast.jobs
            WHERE state = 'queued' AND breaker = closed.key AND run_at = 'infinity'
                AND held_run_at IS NOT NULL
            ORDER BY run_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS job
        LIMIT :limit
    ))
    RETURNING queue, run_at
)
SELECT
    count(*) AS moved,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM gone WHERE run_at <= now()) AS woken
    ) AS woken
FROM gone

-- name: end_letting_go
WITH empty AS MATERIALIZED (
    SELECT key, times_opened = 0 AND failures = '{}' AS is_forgotten
    FROM holdfast.breakers
    WHERE key = ANY (:keys::text[]) AND (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
            AND held_run_at IS NOT NULL
        ORDER BY run_at, id
        LIMIT 1
    ) IS NULL
),
forgotten AS (
    DELETE FROM holdfast.breakers
    WHERE key = ANY (ARRAY(SELECT key FROM empty WHERE is_forgotten))
)
UPDATE holdfast.breakers
SET letting_go = false
WHERE key = ANY (ARRAY(SELECT key FROM empty WHERE NOT is_forgotten))

-- name: park
-- The breakers are locked after the look, and asked again: none of them closes before its jobs are
-- seen by whoever lets them go.
WITH due AS MATERIALIZED (
    SELECT known.key, job.id
    FROM holdfast.breakers AS known
    CROSS JOIN LATERAL (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND breaker = known.key AND run_at <= now() AND NOT suspect
        ORDER BY run_at, id
        LIMIT :limit
    ) AS job
    WHERE known.opened_at IS NOT NULL
    LIMIT :limit
),
locked AS MATERIALIZED (
    SELECT key
    FROM holdfast.breakers
    WHERE key = ANY (ARRAY(SELECT DISTINCT key FROM due)) AND opened_at IS NOT NULL
    ORDER BY key
    FOR SHARE SKIP LOCKED
),
parked AS (
    UPDATE holdfast.jobs
    SET held_run_at = run_at, run_at = 'infinity'
    WHERE id = ANY (ARRAY(
        SELECT id
        FROM holdfast.jobs
        WHERE id = ANY (ARRAY(SELECT id FROM due WHERE key IN (SELECT key FROM locked)))
            AND lease_owner IS NULL AND finished_at IS NULL AND run_at <= now() AND NOT suspect
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
)
SELECT
    (SELECT count(*) FROM parked) AS moved,
    (
        SELECT
            extract(
                epoch FROM min(greatest(least(next_probe_at, now() + interval '1 year'), 'epoch'))
                - now()
            )::float8
        FROM holdfast.breakers
        WHERE opened_at IS NOT NULL AND next_probe_at IS NOT NULL
    ) AS probe_in_seconds

-- name: claim_probes
WITH {no_room},
{probes}

-- name: claim_probes_with_room
WITH {room},
{probes}

-- name: pass_over
-- Who found none to send ahead among so many held jobs lets the next look begin behind them.
UPDATE holdfast.breakers
SET probed_id = coalesce(
    (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
            AND id > breakers.probed_id
        ORDER BY run_at, id
        OFFSET :look_max - 1
        LIMIT 1
    ),
    (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
        ORDER BY run_at, id
        OFFSET :look_max - 1
        LIMIT 1
    )
)
WHERE key = ANY (ARRAY(
    SELECT key
    FROM holdfast.breakers AS known
    WHERE opened_at IS NOT NULL AND next_probe_at <= now() AND (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = known.key AND run_at = 'infinity'
        ORDER BY run_at, id
        OFFSET :look_max
        LIMIT 1
    ) IS NOT NULL
    FOR UPDATE SKIP LOCKED
))
