-- name: note_ends
-- Canceled jobs, and those whose last worker was lost, end without their handler.
UPDATE holdfast.convert_conversions
SET ended_at = now()
WHERE ended_at IS NULL
    AND job_id IN (
        SELECT job_id
        FROM (
            SELECT job_id FROM holdfast.convert_conversions
            WHERE ended_at IS NULL AND job_id > :after
            ORDER BY job_id
            LIMIT :rows_max
        ) AS looked_at
        WHERE NOT EXISTS (
            SELECT 1 FROM holdfast.jobs
            WHERE jobs.id = looked_at.job_id AND jobs.finished_at IS NULL
        )
    );

-- name: last_open
SELECT job_id FROM holdfast.convert_conversions
WHERE ended_at IS NULL AND job_id > :after
ORDER BY job_id
LIMIT 1 OFFSET :rows_max - 1;

-- name: old_uploads
-- A requeued job converts the same upload, and has its own row from its first attempt on.
SELECT old.upload_id
FROM holdfast.convert_conversions AS old
WHERE old.upload_removed_at IS NULL AND old.ended_at IS NOT NULL AND old.ended_at < :before
    AND NOT EXISTS (
        SELECT 1
        FROM holdfast.convert_conversions AS other
        WHERE other.upload_id = old.upload_id
            AND (
                other.ended_at IS NULL
                OR other.ended_at >= :before
                OR EXISTS (
                    SELECT 1
                    FROM holdfast.requeues
                    JOIN holdfast.jobs ON jobs.id = requeues.new_id
                    WHERE requeues.job_id = other.job_id AND jobs.finished_at IS NULL
                )
            )
    )
ORDER BY old.ended_at
LIMIT :rows_max;

-- name: note_upload_removed
UPDATE holdfast.convert_conversions
SET upload_removed_at = now()
WHERE upload_id = :upload_id AND upload_removed_at IS NULL AND ended_at IS NOT NULL;

-- name: old_conversions
SELECT job_id, result_path FROM holdfast.convert_conversions
WHERE upload_removed_at IS NOT NULL AND ended_at < :before
ORDER BY ended_at
LIMIT :rows_max;
