-- name: cancel
WITH found AS MATERIALIZED (
    SELECT id, fence, attempt, lease_owner, started_at FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND finished_at IS NULL
        AND (lease_owner IS NULL OR NOT :waiting_only::boolean)
    ORDER BY id
    FOR UPDATE
),
attempted AS (
    INSERT INTO holdfast.attempts ({attempt})
    SELECT
        id, fence, attempt, 'canceled', lease_owner, started_at, now(), 'CANCELED',
        coalesce(:reason::text, 'the job was canceled while it ran')
    FROM found WHERE lease_owner IS NOT NULL
),
ended AS (
    DELETE FROM holdfast.jobs WHERE id = ANY (ARRAY(SELECT id FROM found))
    RETURNING
        *, 'canceled' AS end_state, result AS end_result, 'CANCELED' AS end_code,
        CASE
            WHEN :reason IS NOT NULL THEN :reason
            WHEN lease_owner IS NULL THEN 'the job was canceled while it waited'
            ELSE 'the job was canceled while it ran'
        END AS end_text,
        0 AS crashed
),
{end}
SELECT
    id, lease_owner IS NOT NULL AS was_running,
    (
        SELECT count(pg_notify('holdfast', 'c:' || id)) FROM found WHERE lease_owner IS NOT NULL
    ) AS woken
FROM found ORDER BY id

-- name: retry
WITH due AS (
    UPDATE holdfast.jobs SET run_at = now(), held_run_at = NULL
    WHERE id = :job_id AND lease_owner IS NULL AND finished_at IS NULL
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM due

-- name: requeue
-- The row in `requeues` decides between two concurrent requeues of the same job.
WITH old AS (
    SELECT
        id, arguments, {requeued}, now() + make_interval(secs => :longest_seconds) AS kept_until
    FROM holdfast.jobs WHERE id = :job_id AND finished_at IS NOT NULL
    UNION ALL
    SELECT id, arguments, {requeued}, kept_until FROM holdfast.history WHERE id = :job_id
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
    INSERT INTO holdfast.jobs (id, requeued_from, arguments, {requeued})
    SELECT :new_id, id, coalesce(:arguments::json, arguments), {requeued} FROM old
    JOIN noted ON noted.job_id = old.id
    RETURNING queue
)
SELECT pg_notify('holdfast', 'q:' || queue) FROM added
