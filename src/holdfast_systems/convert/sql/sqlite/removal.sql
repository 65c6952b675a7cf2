-- name: known_uploads
SELECT DISTINCT upload_id AS id FROM convert_conversions
WHERE upload_id IN (SELECT value FROM json_each(:ids)) AND upload_removed_at IS NULL;

-- name: known_results
SELECT job_id, result_path FROM convert_conversions
WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: delete_conversion
DELETE FROM convert_conversions
WHERE job_id = :job_id AND upload_removed_at IS NOT NULL AND ended_at < :before;
