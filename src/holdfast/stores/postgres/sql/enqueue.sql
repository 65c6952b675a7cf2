-- name: enqueue
WITH added AS (
    INSERT INTO holdfast.jobs ({given}, run_at, expires_at, tags)
    SELECT
        {given}, coalesce(run_at, now() + make_interval(secs => delay_seconds)),
        now() + make_interval(secs => expires_in_seconds), tags::text[]
    FROM unnest(
        :id::uuid[], :name::text[], :queue::text[], :priority::smallint[], :arguments::json[],
        :max_attempts::integer[], :named_tenant::text[], :correlation_id::text[],
        :idempotency_key::text[], :breaker::text[], :trace::text[], :parent_id::uuid[],
        :run_at::timestamptz[], :delay_seconds::float8[], :expires_in_seconds::float8[],
        :tags::text[]
    ) AS given ({given}, run_at, delay_seconds, expires_in_seconds, tags)
    RETURNING queue, run_at
)
SELECT count(pg_notify('holdfast', 'q:' || queue))
FROM (SELECT DISTINCT queue FROM added WHERE run_at <= now()) AS woken

-- name: enqueue_one
INSERT INTO holdfast.jobs ({given}, run_at, expires_at, tags)
VALUES (
    :id, :name, :queue, :priority, :arguments, :max_attempts, :named_tenant, :correlation_id,
    :idempotency_key, :breaker, :trace, :parent_id,
    coalesce(:run_at, now() + make_interval(secs => :delay_seconds)),
    now() + make_interval(secs => :expires_in_seconds), :tags
)
RETURNING CASE WHEN run_at <= now() THEN pg_notify('holdfast', 'j:' || id || ':' || queue)::text END

-- name: enqueue_plain
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)
VALUES (:id, :name, :queue, :priority, :arguments, :max_attempts)
RETURNING pg_notify('holdfast', 'j:' || id || ':' || queue)::text

-- name: notify_queues
SELECT count(pg_notify('holdfast', 'q:' || queue)) FROM unnest(:queues::text[]) AS woken (queue)

-- name: notify
SELECT pg_notify('holdfast', :payload)

-- name: keep_keys
INSERT INTO holdfast.idempotency_keys (tenant, key, job_id, body_hash, expires_at)
SELECT tenant, key, job_id, body_hash, now() + make_interval(secs => kept_seconds)
FROM unnest(
    :tenants::text[], :keys::text[], :job_ids::uuid[], :body_hashes::bytea[],
    :kept_seconds::float8[]
) AS given (tenant, key, job_id, body_hash, kept_seconds)
ON CONFLICT (tenant, key) DO UPDATE
SET job_id = excluded.job_id, body_hash = excluded.body_hash, expires_at = excluded.expires_at
WHERE idempotency_keys.expires_at <= now()
RETURNING tenant, key

-- name: kept_keys
SELECT kept.tenant, kept.key, kept.job_id, kept.body_hash
FROM unnest(:tenants::text[], :keys::text[]) AS wanted (tenant, key)
CROSS JOIN LATERAL (
    SELECT tenant, key, job_id, body_hash FROM holdfast.idempotency_keys AS known
    WHERE known.tenant = wanted.tenant AND known.key = wanted.key
) AS kept

-- name: ended_id
SELECT
    -- With LIMIT, the planner takes a scan of a whole partition for cheap.
    (ARRAY(SELECT id::text FROM holdfast.history WHERE id = ANY (:ids::uuid[])))[1] AS ended,
    current_setting('transaction_isolation') AS isolation

-- The rest is for callers' connections whose role has no right to insert jobs.

-- name: may_enqueue
SELECT
    current_user::text AS role,
    has_schema_privilege('holdfast', 'USAGE')
    AND has_any_column_privilege('holdfast.jobs', 'INSERT')
    AND has_any_column_privilege('holdfast.jobs', 'SELECT') AS may_insert,
    (
        SELECT has_schema_privilege('holdfast', 'USAGE')
            AND bool_and(has_function_privilege(oid, 'EXECUTE'))
        FROM pg_proc
        WHERE pronamespace = 'holdfast'::regnamespace
            AND proname IN ('enqueue', 'keep_keys', 'kept_keys', 'ended_id', 'keyed_job')
    ) AS may_call

-- name: call_enqueue
SELECT holdfast.enqueue(
    :id::uuid[], :name::text[], :queue::text[], :priority::smallint[], :arguments::json[],
    :max_attempts::integer[], :named_tenant::text[], :correlation_id::text[],
    :idempotency_key::text[], :breaker::text[], :trace::text[], :parent_id::uuid[],
    :run_at::timestamptz[], :delay_seconds::float8[], :expires_in_seconds::float8[],
    :tags::text[]
)

-- name: call_keep_keys
SELECT tenant, key
FROM holdfast.keep_keys(
    :tenants::text[], :keys::text[], :job_ids::uuid[], :body_hashes::bytea[],
    :kept_seconds::float8[]
)

-- name: call_kept_keys
SELECT tenant, key, job_id, body_hash
FROM holdfast.kept_keys(:tenants::text[], :keys::text[], :hashes::bytea[])

-- name: call_keyed_job
SELECT holdfast.keyed_job(:job_id::uuid, :tenant::text, :hashes::bytea[]) AS job

-- name: call_ended_id
SELECT
    holdfast.ended_id(:ids::uuid[]) AS ended,
    current_setting('transaction_isolation') AS isolation
