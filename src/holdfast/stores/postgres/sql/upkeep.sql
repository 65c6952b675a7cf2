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
SELECT holdfast.move_leftovers(
    NULL, :limit::integer, :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: leftovers
SELECT id FROM holdfast.jobs WHERE finished_at IS NOT NULL ORDER BY id LIMIT :limit

-- name: move_leftover
SELECT holdfast.move_leftovers(
    :job_id::uuid, 1, :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: forget_history
SELECT holdfast.forget_history(:limit::integer)

-- name: forget_attempts
SELECT holdfast.forget_attempts(:longest_seconds::float8, :limit::integer)

-- name: forget_keys
SELECT holdfast.forget_keys(:limit::integer)

-- name: forget_requeues
SELECT holdfast.forget_requeues(:limit::integer)

-- name: forget_workers
SELECT holdfast.forget_workers(:leases::float8, :limit::integer)

-- name: forget_breakers
SELECT holdfast.forget_breakers(:kept_seconds::float8, :limit::integer)

-- name: dead_rows
-- The counts of the server, for whoever may vacuum the table.
SELECT
    pg_stat_get_dead_tuples(oid) AS dead, pg_stat_get_live_tuples(oid) AS live,
    pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid) AS changes,
    extract(epoch FROM greatest(
        pg_stat_get_last_vacuum_time(oid), pg_stat_get_last_autovacuum_time(oid)
    ))::float8 AS vacuumed_at,
    extract(epoch FROM clock_timestamp())::float8 AS server_time
FROM pg_class
WHERE oid = 'holdfast.jobs'::regclass AND CASE
    WHEN pg_has_role(relowner, 'USAGE') THEN true
    WHEN current_setting('server_version_num')::integer >= 170000 THEN
        has_table_privilege(oid, 'MAINTAIN')
    ELSE false
END

-- name: vacuum
-- Cutting off the table's empty end would lock out everybody for a moment; autovacuum does that.
VACUUM (SKIP_LOCKED, TRUNCATE off, PARALLEL 0) holdfast.jobs
