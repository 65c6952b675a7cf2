-- name: insert_conversion
INSERT INTO holdfast.convert_conversions
    (job_id, tenant, upload_id, mapping, original_filename, pdf_bytes, created_at)
VALUES (:job_id, :tenant, :job_id, :mapping, :original_filename, :pdf_bytes, now());

-- name: adopt_upload
INSERT INTO holdfast.convert_conversions
    (job_id, tenant, upload_id, mapping, original_filename, pdf_bytes, created_at)
SELECT :job_id, tenant, upload_id, mapping, original_filename, pdf_bytes, now()
FROM holdfast.convert_conversions
WHERE job_id = :upload_id AND tenant = :tenant
ON CONFLICT (job_id) DO NOTHING;

-- name: complete_conversion
UPDATE holdfast.convert_conversions
SET
    result_path = :result_path, result_bytes = :result_bytes, attempts_made = :attempts,
    completed_at = now(), ended_at = now()
WHERE job_id = :job_id;

-- name: fail_conversion
UPDATE holdfast.convert_conversions
SET
    error_code = :error_code, error_message = :error_message, attempts_made = :attempts,
    failed_at = now(), ended_at = now()
WHERE job_id = :job_id;

-- name: find_job
SELECT id, status, mapping, original_filename, attempts, created_at, updated_at, started_at,
    completed_at, failed_at, result_path, error_code, error_message
FROM holdfast.convert_jobs
WHERE id = :id AND tenant = :tenant;

-- name: first_page
SELECT id, status, mapping, original_filename, attempts, created_at, updated_at, started_at,
    completed_at, failed_at, result_path, error_code, error_message
FROM holdfast.convert_jobs
WHERE tenant = :tenant
ORDER BY id DESC
LIMIT :limit;

-- name: next_page
SELECT id, status, mapping, original_filename, attempts, created_at, updated_at, started_at,
    completed_at, failed_at, result_path, error_code, error_message
FROM holdfast.convert_jobs
WHERE tenant = :tenant AND id < :after
ORDER BY id DESC
LIMIT :limit;
