-- Two rules keep these plans stable, whatever the statistics say:
-- rows are addressed by `id = ANY (array)`, never by a join, and a condition on the state of rows
-- that are addressed by id is written as `lease_owner IS [NOT] NULL` or `finished_at IS [NOT]
-- NULL` (equal by constraint), because `state = ...` invites a scan of a whole partial index.
-- Fences stand in an array beside the sorted, unique ids; width_bucket finds a row's place.

-- name: enqueue
WITH added AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, priority, arguments, max_attempts, run_at, expires_at, tenant,
        correlation_id, tags, idempotency_key, breaker, trace
    )
    SELECT
        id, name, queue, priority, arguments, max_attempts,
        coalesce(run_at, now() + make_interval(secs => delay_seconds)),
        now() + make_interval(secs => expires_in_seconds),
        tenant, correlation_id, tags::text[], idempotency_key, breaker, trace
    FROM unnest(
        :ids::uuid[], :names::text[], :queues::text[], :priorities::smallint[],
        :arguments::json[], :max_attempts::integer[], :run_at::timestamptz[],
        :delay_seconds::float8[], :expires_in_seconds::float8[], :tenants::text[],
        :correlation_ids::text[], :tags::text[], :keys::text[], :breakers::text[],
        :traces::text[]
    ) AS given (
        id, name, queue, priority, arguments, max_attempts, run_at, delay_seconds,
        expires_in_seconds, tenant, correlation_id, tags, idempotency_key, breaker, trace
    )
    RETURNING queue, run_at
)
SELECT count(pg_notify('holdfast', 'q:' || queue))
FROM (SELECT DISTINCT queue FROM added WHERE run_at <= now()) AS woken

-- name: enqueue_one
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, expires_at, tenant, correlation_id,
    tags, idempotency_key, breaker, trace
)
VALUES (
    :id, :name, :queue, :priority, :arguments, :max_attempts,
    coalesce(:run_at, now() + make_interval(secs => :delay_seconds)),
    now() + make_interval(secs => :expires_in_seconds),
    :tenant, :correlation_id, :tags, :idempotency_key, :breaker, :trace
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
    SELECT tenant, key, job_id, body_hash
    FROM holdfast.idempotency_keys AS known
    WHERE known.tenant = wanted.tenant AND known.key = wanted.key
) AS kept

-- name: ended_id
SELECT
    -- Without LIMIT: for a single row, a scan of a whole partition seems cheap.
    (ARRAY(SELECT id::text FROM holdfast.history WHERE id = ANY (:ids::uuid[])))[1] AS ended,
    current_setting('transaction_isolation') AS isolation

-- name: claim
WITH RECURSIVE {no_room},
{lanes}
{take}
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM (
        SELECT queue, priority
        FROM lane
        WHERE run_at <= now() AND queue <> ALL (:except_queues::text[]) AND queue <> ALL ({shut})
        ORDER BY priority, queue <= :last_queue, queue
    ) AS turn
    CROSS JOIN LATERAL (
        SELECT id
        FROM holdfast.jobs
        WHERE {due}
        ORDER BY run_at, id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
{claimed}

-- name: claim_told
WITH {no_room}
{told}

-- name: claim_told_with_room
WITH {room}
{told}

-- name: claim_with_room
WITH RECURSIVE {room},
{lanes}
{take}
WHERE id = ANY (ARRAY(
    SELECT id
    FROM (
        SELECT
            id, room, row_number() OVER (PARTITION BY queue ORDER BY priority, run_at, id) AS place
        FROM (
            SELECT turn.queue, turn.priority, turn.room, job.run_at, job.id
            FROM (
                SELECT
                    queue, priority,
                    (SELECT spare[array_position(queues, queue)] FROM room) AS room
                FROM lane
                WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])
                    AND queue <> ALL ({shut})
                ORDER BY priority, queue <= :last_queue, queue
            ) AS turn
            CROSS JOIN LATERAL (
                SELECT run_at, id
                FROM holdfast.jobs
                WHERE {due}
                ORDER BY run_at, id
                LIMIT least(:limit, turn.room)
                FOR UPDATE SKIP LOCKED
            ) AS job
            LIMIT :limit
        ) AS found
    ) AS placed
    WHERE room IS NULL OR place <= room
))
{claimed}

-- name: lanes
WITH RECURSIVE {lanes}
SELECT queue, priority, run_at, id
FROM lane
WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])

-- name: claim_onwards
WITH {no_room}
{take}
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM (
        SELECT queue, priority, run_at, id
        FROM unnest(
            :lane_queues::text[], :lane_priorities::smallint[],
            :lane_run_at::timestamptz[], :lane_ids::uuid[]
        ) AS lane (queue, priority, run_at, id)
        WHERE queue <> ALL ({shut})
    ) AS turn
    CROSS JOIN LATERAL (
        SELECT id
        FROM holdfast.jobs
        WHERE {due} AND (jobs.run_at, jobs.id) >= (turn.run_at, turn.id)
        ORDER BY run_at, id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
{claimed}

-- name: claim_onwards_with_room
WITH {room}
{take}
WHERE id = ANY (ARRAY(
    SELECT id
    FROM (
        SELECT
            id, room, row_number() OVER (PARTITION BY queue ORDER BY priority, run_at, id) AS place
        FROM (
            SELECT turn.queue, turn.priority, turn.room, job.run_at, job.id
            FROM (
                SELECT
                    queue, priority, run_at, id,
                    (SELECT spare[array_position(queues, queue)] FROM room) AS room
                FROM unnest(
                    :lane_queues::text[], :lane_priorities::smallint[],
                    :lane_run_at::timestamptz[], :lane_ids::uuid[]
                ) AS lane (queue, priority, run_at, id)
                WHERE queue <> ALL ({shut})
            ) AS turn
            CROSS JOIN LATERAL (
                SELECT run_at, id
                FROM holdfast.jobs
                WHERE {due} AND (jobs.run_at, jobs.id) >= (turn.run_at, turn.id)
                ORDER BY run_at, id
                LIMIT least(:limit, turn.room)
                FOR UPDATE SKIP LOCKED
            ) AS job
            LIMIT :limit
        ) AS found
    ) AS placed
    WHERE room IS NULL OR place <= room
))
{claimed}

-- name: claim_suspect
WITH {no_room}
{suspect}

-- name: claim_suspect_with_room
WITH {room}
{suspect}

-- name: suspects
SELECT count(*)
FROM (
    SELECT
    FROM holdfast.jobs
    WHERE suspect AND state = 'queued' AND run_at <= now() AND name = ANY (:names::text[])
        AND (:queues::text[] IS NULL OR queue = ANY (:queues))
        AND queue <> ALL (ARRAY(
            SELECT name
            FROM holdfast.queues
            WHERE paused_at IS NOT NULL OR running_max <= (
                SELECT count(*)
                FROM holdfast.jobs AS runs
                WHERE runs.state = 'running' AND runs.queue = queues.name
            )
        ))
    LIMIT :limit
) AS waiting

-- name: claim_by_id
WITH {no_room}
{by_id}

-- name: claim_by_id_with_room
WITH {room}
{by_id}

-- name: renew
WITH renewed AS (
    UPDATE holdfast.jobs
    -- A renewal that had to wait counts from its end; now() is the time when it was asked for.
    SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE id = ANY (ARRAY(
        SELECT id
        FROM holdfast.jobs
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
        SELECT id
        FROM holdfast.jobs
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
UPDATE holdfast.jobs
SET progress = :progress
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
{ending}
SELECT CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END FROM ended

-- name: settle_completing
-- In a transaction of the application's, which ends by itself if its commit does not come. Nothing
-- is written if it is not the one that the block began.
WITH ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = :job_id::uuid AND fence = :fence::bigint AND lease_owner IS NOT NULL
        AND {in_block}
    RETURNING
        *, 'succeeded' AS end_state, NULL AS end_code, NULL AS end_text, 0 AS crashed,
        :result::json AS end_result
),
{ending}
SELECT
    (SELECT count(*) FROM ended) AS ended, {in_block} AS in_block,
    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)

-- name: settle
WITH held AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at, width_bucket(id, :ids::uuid[]) AS place
    FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
        AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
    ORDER BY id
    FOR UPDATE
),
told AS (
    INSERT INTO holdfast.attempts (
        job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
    )
    SELECT
        id, fence, attempt, (:outcomes::text[])[place], lease_owner, started_at, now(),
        (:error_codes::text[])[place], (:error_texts::text[])[place]
    FROM held
    WHERE (:outcomes::text[])[place] IS NOT NULL
),
ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (ARRAY(SELECT id FROM held WHERE (:states::text[])[place] <> 'queued'))
    RETURNING
        id, fence, run_at, created_at, started_at, finished_at, expires_at,
        attempt - (:attempts_back::integer[])[width_bucket(id, :ids::uuid[])] AS attempt,
        max_attempts,
        snoozes + (:snoozed::integer[])[width_bucket(id, :ids::uuid[])] AS snoozes,
        releases + (:released::integer[])[width_bucket(id, :ids::uuid[])] AS releases,
        crashes, (:crashed::integer[])[width_bucket(id, :ids::uuid[])] AS crashed,
        priority, queue, name, arguments, tenant, correlation_id, tags, idempotency_key, progress,
        requeued_from, breaker, trace, held_run_at,
        (:states::text[])[width_bucket(id, :ids::uuid[])] AS end_state,
        coalesce((:results::json[])[width_bucket(id, :ids::uuid[])], result) AS end_result,
        coalesce(
            (:error_codes::text[])[width_bucket(id, :ids::uuid[])], error_code
        ) AS end_code,
        coalesce((:error_texts::text[])[width_bucket(id, :ids::uuid[])], error_text) AS end_text
),
{ending},
queued AS (
    UPDATE holdfast.jobs
    SET state = 'queued',
        fence = fence + 1,
        attempt = attempt - (:attempts_back::integer[])[width_bucket(id, :ids::uuid[])],
        snoozes = snoozes + (:snoozed::integer[])[width_bucket(id, :ids::uuid[])],
        releases = releases + (:released::integer[])[width_bucket(id, :ids::uuid[])],
        crashes = crashes + (:crashed::integer[])[width_bucket(id, :ids::uuid[])],
        lease_owner = NULL,
        lease_expires_at = NULL,
        alone = false,
        run_at = now() + make_interval(
            secs => (:delay_seconds::float8[])[width_bucket(id, :ids::uuid[])]
        ),
        error_code = coalesce(
            (:error_codes::text[])[width_bucket(id, :ids::uuid[])], error_code
        ),
        error_text = coalesce(
            (:error_texts::text[])[width_bucket(id, :ids::uuid[])], error_text
        )
    WHERE id = ANY (ARRAY(SELECT id FROM held WHERE (:states::text[])[place] = 'queued'))
    RETURNING queue, run_at
)
SELECT
    CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM queued WHERE run_at <= now()) AS woken
    )
FROM held

-- name: reclaim
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at < now()
        AND lease_expires_at >= coalesce(
            now() - make_interval(secs => :back_seconds), '-infinity'
        )
    ORDER BY lease_expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT id
    FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
        AND expires_at >= coalesce(now() - make_interval(secs => :back_seconds), '-infinity')
    ORDER BY expires_at
    LIMIT :limit - (SELECT count(*) FROM lost)
    FOR UPDATE SKIP LOCKED
),
{reclaiming}

-- name: reclaim_worker
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_owner = :dead_worker
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
expired AS (
    SELECT id FROM lost WHERE false
),
{reclaiming}

-- name: reclaim_one
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at
    FROM holdfast.jobs
    WHERE id = :job_id AND lease_owner IS NOT NULL
        AND CASE
            WHEN :dead_worker::text IS NULL THEN lease_expires_at < now()
            ELSE lease_owner = :dead_worker
        END
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT id
    FROM holdfast.jobs
    WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL AND expires_at <= now()
        AND :dead_worker IS NULL
    FOR UPDATE SKIP LOCKED
),
{reclaiming}

-- name: reclaimable
(
    SELECT id
    FROM holdfast.jobs
    WHERE state = 'running'
        AND CASE
            WHEN :dead_worker::text IS NULL THEN lease_expires_at < now()
            ELSE lease_owner = :dead_worker
        END
    ORDER BY lease_expires_at
    LIMIT :limit
)
UNION ALL
(
    SELECT id
    FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
        AND :dead_worker IS NULL
    ORDER BY expires_at
    LIMIT :limit
)

-- name: cancel
WITH held AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at
    FROM holdfast.jobs
    WHERE
        id = ANY (:ids::uuid[]) AND finished_at IS NULL
        AND (lease_owner IS NULL OR NOT :waiting_only::boolean)
    ORDER BY id
    FOR UPDATE
),
told AS (
    INSERT INTO holdfast.attempts (
        job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
    )
    SELECT
        id, fence, attempt, 'canceled', lease_owner, started_at, now(), 'CANCELED',
        'the job was canceled while it ran'
    FROM held
    WHERE lease_owner IS NOT NULL
),
ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING
        *, 'canceled' AS end_state, result AS end_result, 'CANCELED' AS end_code,
        CASE
            WHEN lease_owner IS NULL THEN 'the job was canceled while it waited'
            ELSE 'the job was canceled while it ran'
        END AS end_text,
        0 AS crashed
),
{ending}
SELECT
    id, lease_owner IS NOT NULL AS was_running,
    (
        SELECT count(pg_notify('holdfast', 'c:' || id)) FROM held WHERE lease_owner IS NOT NULL
    ) AS woken
FROM held
ORDER BY id

-- name: retry
WITH due AS (
    UPDATE holdfast.jobs
    SET run_at = now(), held_run_at = NULL
    WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM due

-- name: requeue
-- The row in `requeues` decides between two who requeue the same job at once.
WITH old AS (
    SELECT
        id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
        breaker, now() + make_interval(secs => :longest_seconds) AS kept_until
    FROM holdfast.jobs
    WHERE id = :job_id AND finished_at IS NOT NULL
    UNION ALL
    SELECT
        id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
        breaker, kept_until
    FROM holdfast.history
    WHERE id = :job_id
),
noted AS (
    INSERT INTO holdfast.requeues (job_id, new_id, requeued_at, kept_until)
    SELECT id, :new_id::uuid, now(), kept_until FROM old
    ON CONFLICT (job_id) DO UPDATE
    SET new_id = excluded.new_id, requeued_at = excluded.requeued_at
    WHERE NOT :once::boolean
    RETURNING job_id
),
added AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
        breaker, requeued_from
    )
    SELECT
        :new_id, name, queue, priority, coalesce(:arguments::json, arguments), max_attempts,
        tenant, correlation_id, tags, breaker, id
    FROM old
    JOIN noted ON noted.job_id = old.id
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM added
