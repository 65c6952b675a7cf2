-- name: scan_lanes
SELECT
    queues, priorities, waits_since, late_queues, late_priorities, late_run_at, late_ids, entries
FROM holdfast.scan_lanes(
    :names::text[], :queues::text[], :except_queues::text[], :tenant::text,
    :look_back_seconds::float8, :late_max::integer
)

-- name: note_lanes
SELECT holdfast.note_lanes(
    :lane_queues::text[], :lane_priorities::smallint[], :lane_run_at::timestamptz[],
    :every_seconds::float8, :kept_seconds::float8
)

-- name: noted_lanes
SELECT queue, priority, run_at FROM holdfast.lanes
WHERE noted_at > now() - make_interval(secs => :kept_seconds)
    AND (:queues::text[] IS NULL OR queue = ANY (:queues))
    AND queue <> ALL (:except_queues::text[])

-- name: claim
WITH RECURSIVE {caps_unknown},
{lanes}
{lease}
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM (
        SELECT queue, priority FROM lane
        WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])
            AND queue <> ALL ({paused_or_full})
        ORDER BY priority, queue <= :last_queue, queue
    ) AS turn
    CROSS JOIN LATERAL (
        SELECT id FROM holdfast.jobs WHERE {due}
        ORDER BY run_at, id LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
{claimed}

-- name: claim_with_caps
WITH RECURSIVE {caps_locked},
{lanes}
{lease}
WHERE id = ANY (ARRAY(
    SELECT id
    FROM (
        SELECT
            id, spare, row_number() OVER (PARTITION BY queue ORDER BY priority, run_at, id) AS place
        FROM (
            SELECT turn.queue, turn.priority, turn.spare, job.run_at, job.id
            FROM (
                SELECT
                    queue, priority,
                    (SELECT spare[array_position(queues, queue)] FROM caps) AS spare
                FROM lane
                WHERE run_at <= now() AND queue <> ALL (:except_queues::text[])
                    AND queue <> ALL ({paused_or_full})
                ORDER BY priority, queue <= :last_queue, queue
            ) AS turn
            CROSS JOIN LATERAL (
                SELECT run_at, id FROM holdfast.jobs WHERE {due}
                ORDER BY run_at, id LIMIT least(:limit, turn.spare)
                FOR UPDATE SKIP LOCKED
            ) AS job
            LIMIT :limit
        ) AS found
    ) AS placed
    WHERE spare IS NULL OR place <= spare
))
{claimed}

-- name: claim_onwards
WITH {caps_unknown}
{lease}
WHERE id = ANY (ARRAY(
    SELECT job.id
    FROM (
        SELECT queue, priority, run_at, id FROM {starts} AS lane
        WHERE queue <> ALL ({paused_or_full})
    ) AS turn
    CROSS JOIN LATERAL (
        SELECT id FROM holdfast.jobs
        WHERE {due} AND (jobs.run_at, jobs.id) >= (turn.run_at, turn.id)
        ORDER BY run_at, id LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT :limit
))
{claimed}

-- name: claim_onwards_with_caps
WITH {caps_locked}
{lease}
WHERE id = ANY (ARRAY(
    SELECT id
    FROM (
        SELECT
            id, spare, row_number() OVER (PARTITION BY queue ORDER BY priority, run_at, id) AS place
        FROM (
            SELECT turn.queue, turn.priority, turn.spare, job.run_at, job.id
            FROM (
                SELECT
                    queue, priority, run_at, id,
                    (SELECT spare[array_position(queues, queue)] FROM caps) AS spare
                FROM {starts} AS lane
                WHERE queue <> ALL ({paused_or_full})
            ) AS turn
            CROSS JOIN LATERAL (
                SELECT run_at, id FROM holdfast.jobs
                WHERE {due} AND (jobs.run_at, jobs.id) >= (turn.run_at, turn.id)
                ORDER BY run_at, id LIMIT least(:limit, turn.spare)
                FOR UPDATE SKIP LOCKED
            ) AS job
            LIMIT :limit
        ) AS found
    ) AS placed
    WHERE spare IS NULL OR place <= spare
))
{claimed}

-- name: claim_named
WITH {caps_unknown}
{claim_named}

-- name: claim_named_with_caps
WITH {caps_locked}
{claim_named}

-- name: claim_suspect
WITH {caps_unknown}
{claim_suspect}

-- name: claim_suspect_with_caps
WITH {caps_locked}
{claim_suspect}

-- name: claim_by_id
WITH {caps_unknown}
{claim_by_id}

-- name: claim_by_id_with_caps
WITH {caps_locked}
{claim_by_id}

-- name: claim_probes
WITH {caps_unknown},
{claim_probes}

-- name: claim_probes_with_caps
WITH {caps_locked},
{claim_probes}

-- name: pass_over
-- A worker that found no probe among the first `look_max` jobs lets the next search start later.
UPDATE holdfast.breakers
SET probed_id = coalesce(
    (
        SELECT id FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
            AND (fence, holdfast.lot(id), id) > (
                SELECT passed.fence, holdfast.lot(passed.id), passed.id
                FROM holdfast.jobs AS passed
                WHERE passed.id = breakers.probed_id
            )
        ORDER BY fence, holdfast.lot(id), id
        OFFSET :look_max - 1
        LIMIT 1
    ),
    (
        SELECT id FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
        ORDER BY fence, holdfast.lot(id), id
        OFFSET :look_max - 1
        LIMIT 1
    )
)
WHERE key = ANY (ARRAY(
    SELECT key FROM holdfast.breakers AS known
    WHERE opened_at IS NOT NULL AND next_probe_at <= now() AND (
        SELECT id FROM holdfast.jobs
        WHERE state = 'queued' AND jobs.breaker = known.key AND run_at = 'infinity'
        ORDER BY fence, holdfast.lot(id), id
        OFFSET :look_max
        LIMIT 1
    ) IS NOT NULL
    FOR UPDATE SKIP LOCKED
))
