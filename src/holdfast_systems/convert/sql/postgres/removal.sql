-- name: known_uploads
SELECT DISTINCT upload_id AS id FROM holdfast.convert_conversions
WHERE upload_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids)))
    AND upload_removed_at IS NULL;

-- name: known_results
SELECT job_id, result_path FROM holdfast.convert_conversions
WHERE job_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids)));

-- name: delete_conversion
SELECT holdfast.convert_remove_conversion(:job_id, :before);
