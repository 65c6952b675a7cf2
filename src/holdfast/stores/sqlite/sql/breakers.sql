-- name: breakers
SELECT
    key,
    (
        SELECT count(*)
        FROM json_each(failures)
        WHERE value > :now - CAST(window_seconds * 1e6 AS INTEGER)
    ) AS failures,
    opened_at, opened_by, opened_because, next_probe_at, letting_go AS unparking, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM jobs INDEXED BY jobs_breaker
            WHERE breaker = known.key AND run_at = 9223372036854775807
            LIMIT :parked_max
        )
    ) AS parked
FROM (
    SELECT * FROM breakers WHERE :key IS NULL OR key = :key
    ORDER BY opened_at IS NULL, key LIMIT :limit
) AS known

-- name: struck
SELECT json_group_array(
    json_array(breakers.key, json(failures), opened_at IS NOT NULL, worked_at)
)
FROM json_each(:keys) AS wanted CROSS JOIN breakers ON breakers.key = wanted.value

-- name: strike
INSERT INTO breakers (
    key, failures, window_seconds, probe_seconds, opened_at, opened_because, next_probe_at,
    worked_at, times_opened, changed_at
)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'),
    json_extract(value, '$[4]') IS NOT NULL, :now
FROM json_each(:struck) WHERE true
ON CONFLICT (key) DO UPDATE SET
    failures = excluded.failures, window_seconds = excluded.window_seconds,
    probe_seconds = excluded.probe_seconds, opened_at = excluded.opened_at,
    opened_because = coalesce(excluded.opened_because, opened_because),
    next_probe_at = excluded.next_probe_at, worked_at = excluded.worked_at,
    letting_go = letting_go AND excluded.opened_at IS NULL,
    times_opened = times_opened + excluded.times_opened, changed_at = excluded.changed_at

-- name: open_breaker
INSERT INTO breakers (
    key, window_seconds, probe_seconds, opened_at, opened_by, opened_because, times_opened,
    changed_at
) VALUES (:key, :window_seconds, :probe_seconds, :now, :by, :because, 1, :now)
ON CONFLICT (key) DO UPDATE SET
    opened_at = coalesce(opened_at, excluded.opened_at), opened_by = excluded.opened_by,
    opened_because = excluded.opened_because, next_probe_at = NULL, letting_go = 0,
    times_opened = times_opened + (opened_at IS NULL), changed_at = excluded.changed_at

-- name: close_breaker
-- A successful probe keeps the failures: if more follow, some inputs fail and others don't.
UPDATE breakers SET
    opened_at = NULL, opened_by = NULL, next_probe_at = NULL, probes = 0, letting_go = 1,
    changed_at = :now, failures = CASE WHEN :by_hand THEN '[]' ELSE failures END,
    worked_at = CASE WHEN NOT :by_hand THEN :now END
WHERE key = :key AND opened_at IS NOT NULL AND (:by_hand OR next_probe_at IS NOT NULL)

-- name: forget_breaker
-- `forget_unparked` deletes the row when its last job is unparked.
UPDATE breakers SET
    opened_at = NULL, opened_by = NULL, opened_because = NULL, next_probe_at = NULL,
    probes = 0, failures = '[]', worked_at = NULL, times_opened = 0, letting_go = 1,
    changed_at = :now
WHERE key = :key

-- name: forget_unparked
DELETE FROM breakers
WHERE letting_go AND times_opened = 0 AND failures = '[]' AND NOT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_breaker
    WHERE breaker = breakers.key AND run_at = 9223372036854775807 AND state = 'queued'
)

-- name: park
UPDATE jobs SET held_run_at = run_at, run_at = 9223372036854775807
WHERE rowid IN (
    SELECT due.rowid
    FROM breakers INDEXED BY breakers_holding CROSS JOIN jobs AS due INDEXED BY jobs_breaker
        ON due.breaker = breakers.key AND due.run_at <= :now
    WHERE breakers.opened_at IS NOT NULL AND due.state = 'queued' AND due.suspect = 0
    LIMIT :limit
)

-- name: unparkable
SELECT json_group_array(json_array(number, queue)) FROM (
    SELECT jobs.rowid AS number, jobs.queue
    FROM breakers INDEXED BY breakers_holding CROSS JOIN jobs INDEXED BY jobs_breaker
        ON jobs.breaker = breakers.key AND jobs.run_at = 9223372036854775807
    WHERE breakers.letting_go AND jobs.state = 'queued'
    LIMIT :limit
)

-- name: unpark
UPDATE jobs SET run_at = coalesce(held_run_at, created_at), held_run_at = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: end_unparking
UPDATE breakers SET letting_go = 0, changed_at = :now WHERE letting_go

-- name: next_probe
SELECT min(next_probe_at) FROM breakers INDEXED BY breakers_holding WHERE opened_at IS NOT NULL

-- name: unpark_probes
UPDATE jobs
SET run_at = coalesce(held_run_at, created_at), held_run_at = NULL, probes = probes + 1
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: plan_probes
UPDATE breakers
SET next_probe_at = :now + CAST(probe_seconds * 1e6 AS INTEGER), probes = probes + 1
WHERE key IN (SELECT value FROM json_each(:keys))
