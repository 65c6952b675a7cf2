-- name: breakers
-- With a key, that one only.
SELECT
    key,
    (
        SELECT count(*)
        FROM unnest(failures) AS failed_at
        WHERE failed_at > now() - make_interval(secs => window_seconds)
    ) AS failures,
    opened_at, opened_by, opened_because, next_probe_at, letting_go AS unparking, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT FROM holdfast.jobs
            WHERE breaker = known.key AND state = 'queued' AND run_at = 'infinity'
            LIMIT :parked_max
        ) AS counted
    ) AS parked
FROM holdfast.breakers AS known WHERE :key::text IS NULL OR key = :key
ORDER BY opened_at IS NULL, key LIMIT :limit

-- name: strike
-- In the order of the keys, like all statements that lock several breakers.
SELECT
    key,
    holdfast.strike(
        key, failures_max, windows, probes, becauses, :wait_seconds, failed_seconds_ago,
        worked_seconds_ago, :doubt_factor
    ) AS answers
FROM (
    SELECT
        key, array_agg(failures_max ORDER BY place) AS failures_max,
        array_agg(window_seconds ORDER BY place) AS windows,
        array_agg(probe_seconds ORDER BY place) AS probes,
        array_agg(because ORDER BY place) AS becauses,
        array_agg(failed_seconds_ago ORDER BY place) AS failed_seconds_ago,
        min(worked_seconds_ago) AS worked_seconds_ago
    FROM unnest(
        :key::text[], :failures_max::integer[], :window_seconds::float8[],
        :probe_seconds::float8[], :because::text[], :failed_seconds_ago::float8[],
        :worked_seconds_ago::float8[]
    ) WITH ORDINALITY AS given (
        key, failures_max, window_seconds, probe_seconds, because, failed_seconds_ago,
        worked_seconds_ago, place
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
ON CONFLICT (key) DO UPDATE SET
    opened_at = coalesce(known.opened_at, now()), opened_by = excluded.opened_by,
    opened_because = excluded.opened_because, next_probe_at = NULL, letting_go = false,
    times_opened = known.times_opened + (known.opened_at IS NULL)::integer, changed_at = now()

-- name: close_breaker
-- A successful probe keeps the failures: if more follow, some inputs fail and others don't.
UPDATE holdfast.breakers
SET opened_at = NULL, opened_by = NULL, next_probe_at = NULL, probed_id = NULL,
    probes = 0, failures = CASE WHEN :by_hand THEN '{}' ELSE failures END,
    worked_at = CASE WHEN NOT :by_hand THEN now() END, letting_go = true, changed_at = now()
-- A breaker that was opened by hand has no probes.
WHERE key = :key AND opened_at IS NOT NULL AND (:by_hand OR next_probe_at IS NOT NULL)
RETURNING key

-- name: forget_breaker
SELECT was_known FROM holdfast.forget_breaker(:key::text) AS was_known WHERE was_known

-- name: park
-- Locks the breakers after the search and checks them again: none of them closes before whoever
-- unparks its jobs can see them.
WITH due AS MATERIALIZED (
    SELECT known.key, job.id FROM holdfast.breakers AS known
    CROSS JOIN LATERAL (
        SELECT id FROM holdfast.jobs
        WHERE state = 'queued' AND breaker = known.key AND run_at <= now() AND NOT suspect
        ORDER BY run_at, id LIMIT :limit
    ) AS job
    WHERE known.opened_at IS NOT NULL
    LIMIT :limit
),
locked AS MATERIALIZED (
    SELECT key FROM holdfast.breakers
    WHERE key = ANY (ARRAY(SELECT DISTINCT key FROM due)) AND opened_at IS NOT NULL
    ORDER BY key
    FOR SHARE SKIP LOCKED
),
parked AS (
    UPDATE holdfast.jobs SET held_run_at = run_at, run_at = 'infinity'
    WHERE id = ANY (ARRAY(
        SELECT id FROM holdfast.jobs
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

-- name: lock_unparking
SELECT key FROM holdfast.breakers WHERE letting_go ORDER BY key LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: unpark
WITH unparked AS (
    UPDATE holdfast.jobs SET run_at = held_run_at, held_run_at = NULL
    WHERE id = ANY (ARRAY(
        SELECT job.id
        FROM unnest(:keys::text[]) AS closed (key)
        CROSS JOIN LATERAL (
            SELECT id FROM holdfast.jobs
            WHERE state = 'queued' AND breaker = closed.key AND run_at = 'infinity'
                AND held_run_at IS NOT NULL
            ORDER BY run_at, id LIMIT :limit
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
        FROM (SELECT DISTINCT queue FROM unparked WHERE run_at <= now()) AS woken
    ) AS woken
FROM unparked

-- name: end_unparking
SELECT holdfast.end_unparking(:keys::text[])
