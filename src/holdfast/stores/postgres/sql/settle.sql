-- Two rules keep plans stable, here and in the other files, whatever the statistics say. Address
-- rows by `id = ANY (array)`, never by a join. For these rows, write a condition on the state as
-- `lease_owner IS [NOT] NULL` or `finished_at IS [NOT] NULL`, which constraints make equal: with
-- `state = ...`, the planner may scan a whole partial index.
-- Fences are in an array beside the sorted, unique ids; width_bucket finds a row's place.

-- name: renew
WITH renewed AS (
    UPDATE holdfast.jobs
    -- A renewal that had to wait counts from its end; now() is when it began.
    SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE id = ANY (ARRAY(
        SELECT id FROM holdfast.jobs
        WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
            AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
)
SELECT CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END FROM renewed

-- name: release_strays
WITH released AS (
    UPDATE holdfast.jobs
    SET state = 'queued', fence = fence + 1, attempt = attempt - 1, lease_owner = NULL,
        lease_expires_at = NULL, alone = false, run_at = now()
    WHERE id = ANY (ARRAY(
        SELECT id FROM holdfast.jobs
        WHERE state = 'running' AND lease_owner = :worker
            AND (id, fence) NOT IN (
                SELECT id, fence
                FROM unnest(:ids::uuid[], :fences::bigint[]) AS known (id, fence)
            )
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING queue
)
SELECT
    count(*),
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM released) AS woken
    )
FROM released

-- name: progress
UPDATE holdfast.jobs SET progress = :progress
WHERE id = :job_id AND fence = :fence AND lease_owner IS NOT NULL
RETURNING id

-- name: fences
SELECT id, fence, state FROM holdfast.jobs WHERE id = ANY (:ids::uuid[])
UNION ALL
SELECT id, fence, state FROM holdfast.history WHERE id = ANY (:ids::uuid[])

-- name: standing
SELECT state, fence FROM holdfast.jobs WHERE id = :job_id FOR SHARE

-- name: standing_ended
SELECT state, fence FROM holdfast.history WHERE id = :job_id

-- name: settle_succeeded
SELECT holdfast.settle_succeeded(
    :ids::uuid[], :fences::bigint[], :results::json[], :kept_seconds::float8, :rule_queues::text[],
    :rule_states::text[], :rule_seconds::float8[]
)

-- name: settle_completing
-- In the application's transaction, which the server ends if no commit follows. Writes nothing if
-- it is not the transaction that the block began.
SELECT
    CASE
        WHEN {in_block} THEN holdfast.settle_succeeded(
            ARRAY[:job_id::uuid], ARRAY[:fence::bigint], ARRAY[:result::json],
            :kept_seconds::float8, :rule_queues::text[], :rule_states::text[],
            :rule_seconds::float8[]
        ) IS NULL
    END AS ended,
    {in_block} AS in_block,
    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)

-- name: limit_commit
-- Before an attempt that failed is settled in the application's transaction.
SELECT
    {in_block} AS in_block,
    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)

-- name: settle
SELECT holdfast.settle(
    :ids::uuid[], :fences::bigint[], :states::text[], :delay_seconds::float8[], :results::json[],
    :error_codes::text[], :error_texts::text[], :attempts_back::integer[], :snoozed::integer[],
    :released::integer[], :crashed::integer[], :outcomes::text[], :failures::json[],
    :kept_seconds::float8, :rule_queues::text[], :rule_states::text[], :rule_seconds::float8[]
)
