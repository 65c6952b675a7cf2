-- name: forget_jobs
SELECT id FROM holdfast.compute_forget_jobs(:before, :rows_max) AS id

-- name: forget_artifacts
SELECT id FROM holdfast.compute_forget_artifacts(:rows_max) AS id
