-- name: insert_bulk_jobs
INSERT INTO holdfast.bulk_jobs (change_id, position, job_id)
SELECT :id, :after + given.place, given.job_id::uuid
FROM json_array_elements_text(:job_ids::json) WITH ORDINALITY AS given (job_id, place)

-- name: delete_bulk_jobs
SELECT FROM holdfast.delete_bulk_jobs(:id, :rows_max)

-- name: delete_bulk_change
SELECT holdfast.delete_bulk_change(:id)
