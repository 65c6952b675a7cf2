-- Two rules keep these plans stable, whatever the statistics say:
-- rows are addressed by `id = ANY (array)`, never by a join, and a condition on the state of rows
-- that are addressed by id is written as `lease_owner IS [NOT] NULL` or `finished_at IS [NOT]
-- NULL` (equal by constraint), because `state = ...` invites a scan of a whole partial index.
-- Fences stand in an array beside the sorted, unique ids; width_bucket finds a row's place.

-- name: enqueue
WITH added AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, priority, arguments, max_attempts, run_at, expires_at, tenant,
        correlation_id, tags, idempotency_key
    )
    SELECT
        id, name, queue, priority, arguments, max_attempts,
        coalesce(run_at, now() + make_interval(secs => delay_seconds)),
        now() + make_interval(secs => expires_in_seconds),
        tenant, correlation_id, tags::text[], idempotency_key
    FROM unnest(
        :ids::uuid[], :names::text[], :queues::text[], :priorities::smallint[],
        :arguments::json[], :max_attempts::integer[], :run_at::timestamptz[],
        :delay_seconds::float8[], :expires_in_seconds::float8[], :tenants::text[],
        :correlation_ids::text[], :tags::text[], :keys::text[]
    ) AS given (
        id, name, queue, priority, arguments, max_attempts, run_at, delay_seconds,
        expires_in_seconds, tenant, correlation_id, tags, idempotency_key
    )
    RETURNING queue, run_at
)
SELECT count(pg_notify('holdfast', 'q:' || queue))
FROM (SELECT DISTINCT queue FROM added WHERE run_at <= now()) AS woken

-- name: enqueue_one
WITH added AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, priority, arguments, max_attempts, run_at, expires_at, tenant,
        correlation_id, tags, idempotency_key
    )
    VALUES (
        :id, :name, :queue, :priority, :arguments, :max_attempts,
        coalesce(:run_at, now() + make_interval(secs => :delay_seconds)),
        now() + make_interval(secs => :expires_in_seconds),
        :tenant, :correlation_id, :tags, :key
    )
    RETURNING queue, run_at
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM added WHERE run_at <= now()

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

-- name: prune_keys
DELETE FROM holdfast.idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM holdfast.idempotency_keys
    WHERE expires_at <= now()
    ORDER BY expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING key

-- name: claim
WITH RECURSIVE {lanes}
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now()
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM (
        SELECT queue, priority
        FROM lane
        WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])
        ORDER BY priority, queue <= :last_queue, queue
    ) AS turn
    CROSS JOIN LATERAL (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND queue = turn.queue AND priority = turn.priority
            AND run_at <= now() AND name = ANY (:names::text[])
        ORDER BY run_at, id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
RETURNING
    id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts, fence,
    snoozes, releases, coalesce(expires_at <= now(), false) AS expired, run_at

-- name: lanes
WITH RECURSIVE {lanes}
SELECT queue, priority, run_at, id
FROM lane
WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])

-- name: claim_onwards
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now()
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM unnest(
        :lane_queues::text[], :lane_priorities::smallint[], :lane_run_at::timestamptz[],
        :lane_ids::uuid[]
    ) AS lane (queue, priority, run_at, id)
    CROSS JOIN LATERAL (
        SELECT id
        FROM holdfast.jobs
        WHERE state = 'queued' AND queue = lane.queue AND priority = lane.priority
            AND (jobs.run_at, jobs.id) >= (lane.run_at, lane.id)
            AND run_at <= now() AND name = ANY (:names::text[])
        ORDER BY run_at, id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
RETURNING
    id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts, fence,
    snoozes, releases, coalesce(expires_at <= now(), false) AS expired, run_at

-- name: claim_by_id
UPDATE holdfast.jobs
SET state = 'running', fence = fence + 1, attempt = attempt + 1, lease_owner = :worker,
    lease_expires_at = now() + make_interval(secs => :lease_seconds), started_at = now()
WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL AND run_at <= now()
RETURNING
    id, name, arguments, queue, priority, tenant, correlation_id, attempt, max_attempts, fence,
    snoozes, releases, coalesce(expires_at <= now(), false) AS expired, run_at

-- name: renew
WITH renewed AS (
    UPDATE holdfast.jobs
    SET lease_expires_at = now() + make_interval(secs => :lease_seconds)
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

-- name: progress
UPDATE holdfast.jobs
SET progress = :progress
WHERE id = :job_id AND fence = :fence AND lease_owner IS NOT NULL
RETURNING id

-- name: fences
SELECT id, fence, state FROM holdfast.jobs WHERE id = ANY (:ids::uuid[])

-- name: settle_succeeded
WITH settled AS (
    UPDATE holdfast.jobs
    SET state = 'succeeded', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
        finished_at = now(), error_code = NULL, error_text = NULL,
        result = (:results::json[])[width_bucket(id, :ids::uuid[])]
    WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
        AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
    RETURNING id
)
SELECT CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END FROM settled

-- name: settle
WITH held AS MATERIALIZED (
    SELECT id, fence, attempt, queue, lease_owner, started_at,
        width_bucket(id, :ids::uuid[]) AS place
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
settled AS (
    UPDATE holdfast.jobs
    SET state = (:states::text[])[width_bucket(id, :ids::uuid[])],
        fence = fence + 1,
        attempt = attempt - (:attempts_back::integer[])[width_bucket(id, :ids::uuid[])],
        snoozes = snoozes + (:snoozed::integer[])[width_bucket(id, :ids::uuid[])],
        releases = releases + (:released::integer[])[width_bucket(id, :ids::uuid[])],
        lease_owner = NULL,
        lease_expires_at = NULL,
        run_at = CASE (:states::text[])[width_bucket(id, :ids::uuid[])]
            WHEN 'queued' THEN now() + make_interval(
                secs => (:delay_seconds::float8[])[width_bucket(id, :ids::uuid[])]
            )
            ELSE run_at
        END,
        finished_at = CASE (:states::text[])[width_bucket(id, :ids::uuid[])]
            WHEN 'queued' THEN NULL
            ELSE now()
        END,
        result = coalesce((:results::json[])[width_bucket(id, :ids::uuid[])], result),
        error_code = coalesce(
            (:error_codes::text[])[width_bucket(id, :ids::uuid[])], error_code
        ),
        error_text = coalesce(
            (:error_texts::text[])[width_bucket(id, :ids::uuid[])], error_text
        )
    WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING id, queue, state, run_at
)
SELECT
    CASE WHEN count(*) <> cardinality(:ids) THEN coalesce(array_agg(id), '{}') END,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (
            SELECT DISTINCT queue FROM settled WHERE state = 'queued' AND run_at <= now()
        ) AS woken
    )
FROM settled

-- name: reclaim
WITH lost AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at < now()
    ORDER BY lease_expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT id
    FROM holdfast.jobs
    WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
    ORDER BY expires_at
    LIMIT :limit - (SELECT count(*) FROM lost)
    FOR UPDATE SKIP LOCKED
),
told AS (
    INSERT INTO holdfast.attempts (
        job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
    )
    SELECT
        id, fence, attempt, 'lost', lease_owner, started_at, now(), 'LEASE_LOST',
        format('the worker %s stopped renewing its lease', lease_owner)
    FROM lost
),
moved AS (
    UPDATE holdfast.jobs
    SET state = CASE
            WHEN state = 'queued' THEN 'canceled'
            WHEN attempt >= max_attempts THEN 'dead'
            ELSE 'queued'
        END,
        fence = fence + 1,
        lease_owner = NULL,
        lease_expires_at = NULL,
        run_at = CASE WHEN state = 'running' AND attempt < max_attempts THEN now() ELSE run_at END,
        finished_at = CASE
            WHEN state = 'running' AND attempt < max_attempts THEN NULL
            ELSE now()
        END,
        error_code = CASE state WHEN 'queued' THEN 'EXPIRED' ELSE 'LEASE_LOST' END,
        error_text = CASE state
            WHEN 'queued' THEN 'the job expired before it started'
            ELSE format('the worker %s stopped renewing its lease', lease_owner)
        END
    WHERE id = ANY (ARRAY(SELECT id FROM lost UNION ALL SELECT id FROM expired))
    RETURNING id, name, queue, tenant, correlation_id, attempt, fence, state, error_code
)
SELECT
    moved.id, name, queue, tenant, correlation_id, moved.attempt, moved.fence, state,
    lost.lease_owner AS worker, error_code,
    (
        SELECT count(pg_notify('holdfast', 'q:' || queue))
        FROM (SELECT DISTINCT queue FROM moved WHERE state = 'queued') AS woken
    ) AS woken
FROM moved
LEFT JOIN lost ON lost.id = moved.id

-- name: cancel
WITH held AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at
    FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND finished_at IS NULL
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
canceled AS (
    UPDATE holdfast.jobs
    SET state = 'canceled', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
        finished_at = now(), error_code = 'CANCELED',
        error_text = CASE
            WHEN lease_owner IS NULL THEN 'the job was canceled while it waited'
            ELSE 'the job was canceled while it ran'
        END
    WHERE id = ANY (ARRAY(SELECT id FROM held))
)
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
    SET run_at = now()
    WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM due

-- name: requeue
WITH added AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
        requeued_from
    )
    SELECT
        :new_id::uuid, name, queue, priority, arguments, max_attempts, tenant, correlation_id,
        tags, id
    FROM holdfast.jobs
    WHERE id = :job_id AND finished_at IS NOT NULL
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM added

-- name: get
SELECT
    id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, fence, lease_owner, lease_expires_at, run_at,
    expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
    requeued_from
FROM holdfast.jobs
WHERE id = :job_id

-- name: attempts
SELECT
    job_id, attempt, fence, outcome, worker, started_at, ended_at, error_code, error_text
FROM holdfast.attempts
WHERE job_id = :job_id
ORDER BY fence

-- name: page
SELECT
    id, name, state, queue, priority, arguments, tenant, correlation_id, tags, idempotency_key,
    attempt, max_attempts, snoozes, releases, fence, lease_owner, lease_expires_at, run_at,
    expires_at, created_at, started_at, finished_at, progress, result, error_code, error_text,
    requeued_from
FROM holdfast.jobs
WHERE (:after::uuid IS NULL OR id < :after)
    AND (cardinality(:states::text[]) = 0 OR state = ANY (:states::text[]))
    AND (:queue::text IS NULL OR queue = :queue)
    AND (:name::text IS NULL OR name = :name)
    AND (:tenant::text IS NULL OR tenant = :tenant)
    AND (:tag::text IS NULL OR :tag = ANY (tags))
    AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id)
ORDER BY id DESC
LIMIT :limit

-- name: counts
SELECT queue, state, count(*) AS jobs
FROM holdfast.jobs
WHERE :tenant::text IS NULL OR tenant = :tenant
GROUP BY queue, state
ORDER BY queue, state

-- name: awaited
WITH RECURSIVE {lanes}
SELECT
    EXISTS (
        SELECT FROM holdfast.jobs
        WHERE state = 'running' AND name = ANY (:names::text[])
            AND (:queues::text[] IS NULL OR queue = ANY (:queues))
    )
    OR EXISTS (
        SELECT
        FROM (
            SELECT queue, priority
            FROM lane
            WHERE run_at <= now() + make_interval(secs => :within_seconds)
        ) AS near
        CROSS JOIN LATERAL (
            SELECT
            FROM holdfast.jobs
            WHERE state = 'queued' AND queue = near.queue AND priority = near.priority
                AND run_at <= now() + make_interval(secs => :within_seconds)
                AND name = ANY (:names::text[])
            ORDER BY run_at, id
            LIMIT 1
        ) AS job
    )

-- name: unknown_names
WITH RECURSIVE {lanes}
SELECT DISTINCT name
FROM (
    SELECT job.name
    FROM (SELECT queue, priority FROM lane WHERE run_at <= now()) AS due
    CROSS JOIN LATERAL (
        SELECT name
        FROM holdfast.jobs
        WHERE state = 'queued' AND queue = due.queue AND priority = due.priority
            AND run_at <= now()
        ORDER BY run_at, id
        LIMIT 200
    ) AS job
    LIMIT 2000
) AS looked_at
WHERE name <> ALL (:names::text[])
ORDER BY name
