-- name: history_days
-- The partitions that are past, and the days that lack one: until these, jobs that end from now on,
-- and the next ones that ended in place, will be kept.
WITH known AS (
    SELECT to_date(substr(relname, 9), 'YYYYMMDD') AS day FROM pg_inherits
    JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'holdfast.history'::regclass AND relname ~ '^history_[0-9]{8}$'
),
today AS (
    SELECT (now() AT TIME ZONE 'UTC')::date AS day
),
ends AS (
    SELECT now() + make_interval(days => number) AS at
    FROM generate_series(0, :ahead::integer) AS number
    UNION ALL
    (
        SELECT least(finished_at, now()) FROM holdfast.jobs WHERE finished_at IS NOT NULL
        ORDER BY id LIMIT :limit
    )
),
wanted AS (
    SELECT DISTINCT (at AT TIME ZONE 'UTC' + make_interval(secs => seconds))::date AS day
    FROM ends
    CROSS JOIN unnest(:kept_seconds::float8[]) AS kept (seconds)
)
SELECT known.day, true AS is_past FROM known JOIN today ON known.day < today.day
UNION ALL
SELECT wanted.day, false FROM wanted JOIN today ON wanted.day >= today.day
WHERE wanted.day NOT IN (SELECT day FROM known)
ORDER BY day

-- name: add_history_day
SELECT holdfast.add_history_day(:day, :strays_max, :rest_bytes_max)

-- name: drop_history_day
SELECT holdfast.drop_history_day(:day)

-- name: fold_history_counts
SELECT holdfast.fold_history_counts(:limit)

-- name: move_leftovers
WITH ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (ARRAY(
        SELECT id FROM holdfast.jobs WHERE finished_at IS NOT NULL
        ORDER BY id LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING
        *, state AS end_state, result AS end_result, error_code AS end_code,
        error_text AS end_text, 0 AS crashed
),
{end}
SELECT id FROM ended

-- name: leftovers
SELECT id FROM holdfast.jobs WHERE finished_at IS NOT NULL ORDER BY id LIMIT :limit

-- name: move_leftover
WITH ended AS (
    DELETE FROM holdfast.jobs WHERE id = :job_id AND finished_at IS NOT NULL
    RETURNING
        *, state AS end_state, result AS end_result, error_code AS end_code,
        error_text AS end_text, 0 AS crashed
),
{end}
SELECT id FROM ended

-- name: forget_history
WITH forgotten AS (
    DELETE FROM holdfast.history_rest
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.history_rest WHERE kept_until <= now()
        ORDER BY kept_until LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING kept_until, tenant, queue, state
),
counted AS (
    INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
    SELECT
        (kept_until AT TIME ZONE 'UTC')::date AS kept_day, coalesce(tenant, ''), queue, state,
        -count(*)
    FROM forgotten GROUP BY kept_day, tenant, queue, state
)
SELECT queue FROM forgotten

-- name: forget_attempts
DELETE FROM holdfast.attempts
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.attempts
    WHERE ended_at <= now() - make_interval(secs => :longest_seconds)
        AND NOT EXISTS (SELECT FROM holdfast.jobs WHERE jobs.id = attempts.job_id)
    ORDER BY ended_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING job_id

-- name: forget_keys
DELETE FROM holdfast.idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.idempotency_keys WHERE expires_at <= now()
    ORDER BY expires_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING key

-- name: forget_requeues
-- History is dropped by the day, and that may be late: keep a requeue longer than its job.
DELETE FROM holdfast.requeues
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.requeues WHERE kept_until <= now() - interval '2 days'
    ORDER BY kept_until LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING job_id

-- name: forget_workers
DELETE FROM holdfast.workers
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.workers
    WHERE seen_at <= now() - make_interval(secs => lease_seconds * :leases)
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING id

-- name: forget_breakers
-- A closed breaker that unparks nothing has no parked jobs.
DELETE FROM holdfast.breakers
WHERE key = ANY (ARRAY(
    SELECT key FROM holdfast.breakers
    WHERE opened_at IS NULL AND NOT letting_go
        AND changed_at <= now() - make_interval(secs => :kept_seconds)
    ORDER BY changed_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING key
