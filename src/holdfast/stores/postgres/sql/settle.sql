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
WITH ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
        AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
    RETURNING
        *, 'succeeded' AS end_state, NULL AS end_code, NULL AS end_text, 0 AS crashed,
        (:results::json[])[width_bucket(id, :ids::uuid[])] AS end_result
),
{end}
SELECT CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END FROM ended

-- name: settle_completing
-- In the application's transaction, which the server ends if no commit follows. Writes nothing if
-- it is not the transaction that the block began.
WITH ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = :job_id::uuid AND fence = :fence::bigint AND lease_owner IS NOT NULL
        AND {in_block}
    RETURNING
        *, 'succeeded' AS end_state, NULL AS end_code, NULL AS end_text, 0 AS crashed,
        :result::json AS end_result
),
{end}
SELECT
    (SELECT count(*) FROM ended) AS ended, {in_block} AS in_block,
    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)

-- name: limit_commit
-- Before an attempt that failed is settled in the application's transaction.
SELECT
    {in_block} AS in_block,
    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)

-- name: settle
WITH leased AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at, width_bucket(id, :ids::uuid[]) AS place
    FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
        AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
    ORDER BY id
    FOR UPDATE
),
attempted AS (
    INSERT INTO holdfast.attempts ({attempt})
    SELECT
        id, fence, attempt, (:outcomes::text[])[place], lease_owner, started_at, now(),
        (:error_codes::text[])[place], (:error_texts::text[])[place]
    FROM leased WHERE (:outcomes::text[])[place] IS NOT NULL
),
ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (ARRAY(SELECT id FROM leased WHERE (:states::text[])[place] <> 'queued'))
    RETURNING
        {unchanged}, fence, run_at, held_run_at, finished_at, crashes, lease_owner,
        attempt - (:attempts_back::integer[])[width_bucket(id, :ids::uuid[])] AS attempt,
        snoozes + (:snoozed::integer[])[width_bucket(id, :ids::uuid[])] AS snoozes,
        releases + (:released::integer[])[width_bucket(id, :ids::uuid[])] AS releases,
        (:crashed::integer[])[width_bucket(id, :ids::uuid[])] AS crashed,
        (:states::text[])[width_bucket(id, :ids::uuid[])] AS end_state,
        coalesce((:results::json[])[width_bucket(id, :ids::uuid[])], result) AS end_result,
        coalesce((:error_codes::text[])[width_bucket(id, :ids::uuid[])], error_code) AS end_code,
        coalesce((:error_texts::text[])[width_bucket(id, :ids::uuid[])], error_text) AS end_text
),
{end},
queued AS (
    UPDATE holdfast.jobs
    SET state = 'queued', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
        alone = false,
        attempt = attempt - (:attempts_back::integer[])[width_bucket(id, :ids::uuid[])],
        snoozes = snoozes + (:snoozed::integer[])[width_bucket(id, :ids::uuid[])],
        releases = releases + (:released::integer[])[width_bucket(id, :ids::uuid[])],
        crashes = crashes + (:crashed::integer[])[width_bucket(id, :ids::uuid[])],
        run_at = now() + make_interval(
            secs => (:delay_seconds::float8[])[width_bucket(id, :ids::uuid[])]
        ),
        error_code = coalesce((:error_codes::text[])[width_bucket(id, :ids::uuid[])], error_code),
        error_text = coalesce((:error_texts::text[])[width_bucket(id, :ids::uuid[])], error_text),
        failures = coalesce((:failures::json[])[width_bucket(id, :ids::uuid[])], failures)
    WHERE id = ANY (ARRAY(SELECT id FROM leased WHERE (:states::text[])[place] = 'queued'))
    RETURNING queue, run_at
)
SELECT
    CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM queued WHERE run_at <= now()) AS woken
    )
FROM leased
