-- name: insert_bulk_jobs
INSERT INTO bulk_jobs (change_id, position, job_id)
SELECT :id, :after + given.key + 1, given.value FROM json_each(:job_ids) AS given

-- name: delete_bulk_jobs
DELETE FROM bulk_jobs
WHERE change_id = :id AND position IN (
    SELECT position FROM bulk_jobs
    WHERE change_id = :id ORDER BY position LIMIT :rows_max
)

-- name: delete_bulk_change
DELETE FROM bulk_changes WHERE id = :id
