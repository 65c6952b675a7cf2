-- name: forget_jobs
DELETE FROM compute_jobs
WHERE id IN (
    SELECT job.id
    FROM job AS job
    WHERE job.created_at < :before
        AND job.status NOT IN ('queued', 'running')
        AND coalesce(job.ended_at, job.created_at) < :before
        -- A younger result may be a copy that links to these artifacts.
        AND NOT EXISTS (
            SELECT 1
            FROM compute_jobs AS younger
            JOIN compute_results AS result ON result.job_id = younger.id
            WHERE younger.inputs_hash = job.inputs_hash
                AND younger.created_at > job.created_at
                AND result.created_at >= :before
        )
    ORDER BY job.created_at
    LIMIT :rows_max
)
RETURNING id

-- name: forget_artifacts
DELETE FROM compute_artifacts
WHERE id IN (
    SELECT id FROM compute_artifacts
    WHERE expires_at < now()
    ORDER BY expires_at
    LIMIT :rows_max
)
RETURNING id
