-- name: surroundings
-- `ahead` counts the due jobs in the queue's lanes that are claimed before this one.
WITH RECURSIVE {lanes},
mine AS (
    SELECT queue, priority, run_at, id FROM holdfast.jobs WHERE id = :job_id AND state = 'queued'
)
SELECT
    now() AS now,
    coalesce((SELECT suspect FROM holdfast.jobs WHERE id = :job_id), false) AS suspect,
    EXISTS (SELECT FROM mine WHERE run_at = 'infinity') AS parked,
    coalesce((SELECT probes FROM holdfast.jobs WHERE id = :job_id), 0) AS probes,
    (
        SELECT count(*)
        FROM (
            SELECT FROM mine
            JOIN lane ON lane.priority <= mine.priority AND lane.run_at <= now()
            CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs
                WHERE state = 'queued' AND queue = lane.queue AND priority = lane.priority
                    AND run_at <= now() AND NOT suspect AND {breaker_closed}
                    AND (lane.priority < mine.priority OR (run_at, id) < (mine.run_at, mine.id))
                ORDER BY run_at, id LIMIT :limit
            ) AS job
            LIMIT :limit
        ) AS first
    ) AS ahead

-- An examination reads the rest. Each statement is cheap, and has its own time limit.

-- name: vital_time
SELECT clock_timestamp() AS now

-- name: vital_server
SELECT
    current_setting('server_version') AS version, current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() AS is_standby,
    current_setting('default_transaction_read_only') = 'on' AS is_read_only,
    CASE
        WHEN NOT pg_is_in_recovery() THEN NULL
        -- An idle primary writes nothing that would be new.
        WHEN
            pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
            AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0
        ELSE extract(
            epoch FROM clock_timestamp()
                - coalesce(pg_last_xact_replay_timestamp(), pg_postmaster_start_time())
        )
    END::float8 AS behind_seconds,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit

-- name: vital_connections
SELECT
    (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS used,
    current_setting('max_connections')::bigint
    - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true), '0')::bigint AS usable

-- name: vital_holders
-- Autovacuum does not hold itself back. A slot that nobody reads does.
SELECT
    'process' AS kind, pid::text AS id, usename::text AS user, application_name AS application,
    state, xact_start AS since,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age_seconds,
    NULL::bigint AS xids, query
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type <> 'autovacuum worker'
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND xact_start < clock_timestamp() - make_interval(secs => :transaction_seconds)
UNION ALL
SELECT
    'prepared transaction', gid, owner::text, NULL, NULL, prepared,
    extract(epoch FROM clock_timestamp() - prepared)::float8, NULL, NULL
FROM pg_prepared_xacts
WHERE database = current_database()
    AND prepared < clock_timestamp() - make_interval(secs => :transaction_seconds)
UNION ALL
SELECT
    'replication slot', slot_name::text, NULL, plugin::text, NULL, NULL, NULL,
    age(coalesce(xmin, catalog_xmin))::bigint, NULL
FROM pg_replication_slots
WHERE NOT active AND coalesce(xmin, catalog_xmin) IS NOT NULL
ORDER BY age_seconds DESC NULLS LAST, id LIMIT 100

-- name: vital_hidden
SELECT count(*) AS hidden, current_user::text AS user FROM pg_stat_activity
WHERE datname = current_database() AND query = '<insufficient privilege>'
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)

-- name: vital_jobs_table
SELECT
    n_live_tup AS live, n_dead_tup AS dead, greatest(last_vacuum, last_autovacuum) AS vacuumed_at,
    current_setting('autovacuum') = 'on' AND NOT EXISTS (
        SELECT FROM pg_class
        CROSS JOIN pg_options_to_table(reloptions)
        WHERE oid = relid AND option_name = 'autovacuum_enabled' AND NOT option_value::boolean
    ) AS autovacuum
FROM pg_stat_user_tables WHERE relid = 'holdfast.jobs'::regclass

-- name: vital_indexes
-- The entries are unknown before the first vacuum or analyze. Rows inserted since the last one may
-- be in any index.
SELECT
    index.relname AS name, indisvalid AND indisready AS valid,
    pg_relation_size(indexrelid) AS size_bytes,
    CASE
        WHEN coalesce(last_vacuum, last_autovacuum, last_analyze, last_autoanalyze) IS NOT NULL
        THEN nullif(index.reltuples, -1)::float8 + least(n_ins_since_vacuum, n_mod_since_analyze)
    END AS entries
FROM pg_index
JOIN pg_class AS index ON index.oid = indexrelid
LEFT JOIN pg_stat_user_tables ON relid = indrelid
WHERE index.relnamespace = 'holdfast'::regnamespace

-- name: vital_due
WITH RECURSIVE {lanes}
SELECT
    due.queue, job.name, count(*) AS jobs,
    extract(epoch FROM now() - greatest(min(job.run_at), 'epoch'))::float8 AS oldest_seconds
FROM (SELECT queue, priority FROM lane WHERE run_at <= now() LIMIT :lanes_max) AS due
CROSS JOIN LATERAL (
    SELECT name, run_at FROM holdfast.jobs
    WHERE state = 'queued' AND queue = due.queue AND priority = due.priority AND run_at <= now()
    ORDER BY run_at, id LIMIT :limit
) AS job
GROUP BY due.queue, job.name
ORDER BY oldest_seconds DESC

-- name: vital_handed_back
-- A job that was handed back is due again within `around_seconds`.
WITH RECURSIVE {lanes}
SELECT
    soon.queue, job.name, count(*) AS jobs, max(job.releases) AS releases,
    left(max(job.error_text), 2000) AS error_text
FROM (
    SELECT queue, priority FROM lane
    WHERE run_at <= now() + make_interval(secs => :around_seconds) LIMIT :lanes_max
) AS soon
CROSS JOIN LATERAL (
    SELECT name, releases, error_code, error_text FROM holdfast.jobs
    WHERE state = 'queued' AND queue = soon.queue AND priority = soon.priority
        AND run_at > now() - make_interval(secs => :around_seconds)
        AND run_at <= now() + make_interval(secs => :around_seconds)
    ORDER BY run_at, id LIMIT :limit
) AS job
WHERE job.error_code = 'HANDED_BACK'
GROUP BY soon.queue, job.name
ORDER BY jobs DESC

-- name: vital_stuck
SELECT
    count(*) AS jobs, coalesce(max(oldest_seconds), 0)::float8 AS oldest_seconds,
    coalesce(array_agg(DISTINCT lease_owner), '{}') AS workers
FROM (
    SELECT
        lease_owner,
        extract(epoch FROM now() - greatest(lease_expires_at, 'epoch')) AS oldest_seconds
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at < now() - make_interval(secs => :stuck_seconds)
    ORDER BY lease_expires_at LIMIT :limit
) AS stuck

-- name: vital_paused
SELECT name AS queue, paused_at AS since, paused_by AS by, paused_because AS because
FROM holdfast.queues WHERE paused_at IS NOT NULL
ORDER BY paused_at, name LIMIT 100

-- name: vital_capped
SELECT name AS queue, running_max, coalesce(running, 0) AS running FROM holdfast.queues
LEFT JOIN (
    SELECT queue, count(*) AS running FROM holdfast.jobs WHERE state = 'running' GROUP BY queue
) AS runs ON runs.queue = name
WHERE running_max IS NOT NULL
ORDER BY running_max, name LIMIT 100

-- name: vital_ends
-- Ids follow the time, so the newest ended jobs ended recently, or were urgent.
SELECT
    queue, state, finished_at >= now() - make_interval(secs => :lately_seconds) AS lately,
    count(*) AS jobs
FROM (
    SELECT queue, state, finished_at FROM holdfast.history ORDER BY id DESC LIMIT :limit
) AS newest
GROUP BY queue, state, lately

-- name: vital_failures
SELECT queue, name, error_code, left(error_text, 2000) AS error_text
FROM (
    SELECT queue, name, state, finished_at, error_code, error_text FROM holdfast.history
    WHERE state <> 'succeeded'
    ORDER BY id DESC LIMIT :limit
) AS newest
WHERE state IN ('failed', 'dead')
    AND finished_at >= now() - make_interval(secs => :lately_seconds)

-- name: vital_history
SELECT
    pg_relation_size('holdfast.history_rest') AS rest_bytes,
    (
        SELECT count(*)
        FROM (SELECT FROM holdfast.jobs WHERE finished_at IS NOT NULL LIMIT :limit) AS counted
    ) AS leftovers,
    (
        SELECT count(*)
        FROM (
            SELECT FROM holdfast.history_rest
            WHERE kept_until < now() - make_interval(days => :late_days)
            LIMIT :limit
        ) AS counted
    ) AS outlived
