-- name: queues
SELECT
    name, sum(ready), sum(scheduled), sum(held), sum(running), (:now - max(min(oldest), 0)) / 1e6,
    max(paused_at), max(paused_by), max(paused_because), max(running_max)
FROM (
    SELECT
        queue AS name, count(*) FILTER (WHERE run_at <= :now) AS ready,
        count(*) FILTER (WHERE run_at > :now AND run_at < 9223372036854775807) AS scheduled,
        count(*) FILTER (WHERE run_at = 9223372036854775807) AS held, 0 AS running,
        min(run_at) FILTER (WHERE run_at <= :now) AS oldest, NULL AS paused_at, NULL AS paused_by,
        NULL AS paused_because, NULL AS running_max
    FROM jobs INDEXED BY jobs_due
    WHERE state = 'queued'
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, count(*), NULL, NULL, NULL, NULL, NULL
    FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT name, 0, 0, 0, 0, NULL, paused_at, paused_by, paused_because, running_max FROM queues
)
GROUP BY name
ORDER BY name

-- name: queue_said
SELECT
    name, 0, 0, 0,
    (
        SELECT count(*) FROM jobs INDEXED BY jobs_leased
        WHERE state = 'running' AND queue = queues.name
    ),
    NULL, paused_at, paused_by, paused_because, running_max
FROM queues WHERE name = :queue

-- name: pause
INSERT INTO queues (name, paused_at, paused_by, paused_because)
VALUES (:queue, :now, :by, :because)
ON CONFLICT (name) DO UPDATE SET
    paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    paused_because = excluded.paused_because
WHERE paused_at IS NULL

-- name: resume
UPDATE queues SET paused_at = NULL, paused_by = NULL, paused_because = NULL
WHERE name = :queue AND paused_at IS NOT NULL

-- name: cap
INSERT INTO queues (name, running_max) VALUES (:queue, :running_max)
ON CONFLICT (name) DO UPDATE SET running_max = excluded.running_max

-- name: forget_unsaid
DELETE FROM queues WHERE name = :queue AND paused_at IS NULL AND running_max IS NULL

-- name: said
SELECT name, paused_at IS NOT NULL, running_max FROM queues

-- name: running
SELECT queue, count(*) FROM jobs INDEXED BY jobs_leased WHERE state = 'running' GROUP BY queue

-- name: breakers
SELECT
    key,
    (
        SELECT count(*)
        FROM json_each(failures)
        WHERE value > :now - CAST(window_seconds * 1e6 AS INTEGER)
    ),
    opened_at, opened_by, opened_because, next_probe_at, letting_go, times_opened,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM jobs INDEXED BY jobs_breaker
            WHERE breaker = known.key AND run_at = 9223372036854775807
            LIMIT :held_max
        )
    )
FROM (
    SELECT * FROM breakers WHERE :key IS NULL OR key = :key
    ORDER BY opened_at IS NULL, key LIMIT :limit
) AS known

-- name: struck
SELECT json_group_array(json_array(breakers.key, json(failures), opened_at IS NOT NULL))
FROM json_each(:keys) AS wanted CROSS JOIN breakers ON breakers.key = wanted.value

-- name: strike
INSERT INTO breakers (
    key, failures, window_seconds, probe_seconds, opened_at, opened_because, next_probe_at,
    times_opened, changed_at
)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[4]') IS NOT NULL, :now
FROM json_each(:struck) WHERE true
ON CONFLICT (key) DO UPDATE SET
    failures = excluded.failures, window_seconds = excluded.window_seconds,
    probe_seconds = excluded.probe_seconds, opened_at = excluded.opened_at,
    opened_because = coalesce(excluded.opened_because, opened_because),
    next_probe_at = excluded.next_probe_at,
    letting_go = letting_go AND excluded.opened_at IS NULL,
    times_opened = times_opened + excluded.times_opened, changed_at = excluded.changed_at

-- name: open
INSERT INTO breakers (
    key, window_seconds, probe_seconds, opened_at, opened_by, opened_because, times_opened,
    changed_at
) VALUES (:key, :window_seconds, :probe_seconds, :now, :by, :because, 1, :now)
ON CONFLICT (key) DO UPDATE SET
    opened_at = coalesce(opened_at, excluded.opened_at), opened_by = excluded.opened_by,
    opened_because = excluded.opened_because, next_probe_at = NULL, letting_go = 0,
    times_opened = times_opened + (opened_at IS NULL), changed_at = excluded.changed_at

-- name: close
UPDATE breakers SET
    opened_at = NULL, opened_by = NULL, next_probe_at = NULL, failures = '[]', letting_go = 1,
    changed_at = :now
WHERE key = :key AND opened_at IS NOT NULL AND (:by_hand OR next_probe_at IS NOT NULL)

-- One of which nothing is known, but that it lets go, is deleted with its last job.

-- name: forget
UPDATE breakers SET
    opened_at = NULL, opened_by = NULL, opened_because = NULL, next_probe_at = NULL,
    failures = '[]', times_opened = 0, letting_go = 1, changed_at = :now
WHERE key = :key

-- name: forget_let_go
DELETE FROM breakers
WHERE letting_go AND times_opened = 0 AND failures = '[]' AND NOT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_breaker
    WHERE breaker = breakers.key AND run_at = 9223372036854775807 AND state = 'queued'
)

-- name: all_let_go
UPDATE breakers SET letting_go = 0, changed_at = :now WHERE letting_go

-- name: hold
UPDATE jobs SET held_run_at = run_at, run_at = 9223372036854775807
WHERE rowid IN (
    SELECT due.rowid
    FROM breakers INDEXED BY breakers_holding CROSS JOIN jobs AS due INDEXED BY jobs_breaker
        ON due.breaker = breakers.key AND due.run_at <= :now
    WHERE breakers.opened_at IS NOT NULL AND due.state = 'queued' AND due.suspect = 0
    LIMIT :limit
)

-- name: to_let_go
SELECT json_group_array(json_array(number, queue)) FROM (
    SELECT jobs.rowid AS number, jobs.queue
    FROM breakers INDEXED BY breakers_holding CROSS JOIN jobs INDEXED BY jobs_breaker
        ON jobs.breaker = breakers.key AND jobs.run_at = 9223372036854775807
    WHERE breakers.letting_go AND jobs.state = 'queued'
    LIMIT :limit
)

-- name: let_go
UPDATE jobs SET run_at = coalesce(held_run_at, created_at), held_run_at = NULL
WHERE rowid IN (SELECT value FROM json_each(:numbers))

-- name: next_probe
SELECT min(next_probe_at) FROM breakers INDEXED BY breakers_holding WHERE opened_at IS NOT NULL

-- name: due_probes
SELECT json_group_array(json_array(
    number, id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts,
    fence, snoozes, releases, expires_at, run_at, breaker, trace
))
FROM (
    SELECT * FROM (
        SELECT coalesce(
            (
                SELECT held.rowid FROM jobs AS held INDEXED BY jobs_breaker
                WHERE held.breaker = breakers.key AND held.run_at = 9223372036854775807
                    AND held.id > coalesce(breakers.probed_id, '')
                    AND held.name IN (SELECT value FROM json_each(:names))
                    AND (:queues IS NULL OR held.queue IN (SELECT value FROM json_each(:queues)))
                    AND held.queue NOT IN (SELECT value FROM json_each(:except_queues))
                    AND held.state = 'queued' AND held.held_run_at <= :now
                ORDER BY held.id LIMIT 1
            ),
            (
                SELECT held.rowid FROM jobs AS held INDEXED BY jobs_breaker
                WHERE held.breaker = breakers.key AND held.run_at = 9223372036854775807
                    AND held.id <= breakers.probed_id
                    AND held.name IN (SELECT value FROM json_each(:names))
                    AND (:queues IS NULL OR held.queue IN (SELECT value FROM json_each(:queues)))
                    AND held.queue NOT IN (SELECT value FROM json_each(:except_queues))
                    AND held.state = 'queued' AND held.held_run_at <= :now
                ORDER BY held.id LIMIT 1
            )
        ) AS number
        FROM breakers INDEXED BY breakers_holding
        WHERE breakers.opened_at IS NOT NULL AND breakers.next_probe_at <= :now
    ) CROSS JOIN jobs ON jobs.rowid = number
    LIMIT :limit
)

-- name: sent_ahead
UPDATE breakers SET
    next_probe_at = :now + CAST(probe_seconds * 1e6 AS INTEGER), probed_id = sent.id
FROM (
    SELECT json_extract(value, '$[0]') AS key, json_extract(value, '$[1]') AS id
    FROM json_each(:sent)
) AS sent
WHERE breakers.key = sent.key
