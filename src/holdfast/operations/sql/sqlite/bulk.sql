-- name: insert_bulk_jobs
INSERT INTO bulk_jobs (change_id, position, job_id)
SELECT :id, :after + given.key + 1, given.value FROM json_each(:job_ids) AS given
