-- name: cancel
SELECT json_group_array(json_array(jobs.rowid, jobs.queue, jobs.tenant, jobs.id, jobs.state))
FROM json_each(:ids) CROSS JOIN jobs ON jobs.id = value
WHERE jobs.state = 'queued' OR jobs.state = 'running' AND NOT :waiting_only

-- name: retry
UPDATE jobs SET run_at = :now, held_run_at = NULL WHERE id = :id AND state = 'queued'

-- name: requeue
INSERT INTO jobs (id, requeued_from, run_at, created_at, arguments, {requeued})
SELECT :new_id, id, :now, :now, coalesce(:arguments, arguments), {requeued}
FROM (
    SELECT id, arguments, {requeued} FROM history WHERE id = :id
    UNION ALL
    SELECT id, arguments, {requeued} FROM jobs WHERE id = :id AND finished_at IS NOT NULL
    LIMIT 1
)

-- name: requeued_before
SELECT EXISTS (SELECT 1 FROM requeues WHERE job_id = :id)

-- name: note_requeue
INSERT INTO requeues (job_id, new_id, requeued_at, kept_until)
VALUES (
    :id, :new_id, :now, coalesce((SELECT kept_until FROM history WHERE id = :id), :kept_until)
)
ON CONFLICT (job_id) DO UPDATE SET new_id = excluded.new_id, requeued_at = excluded.requeued_at
