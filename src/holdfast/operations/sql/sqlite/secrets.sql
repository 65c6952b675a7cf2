-- name: encrypted_jobs_by_key
SELECT json_extract(arguments, '$."$encrypted".key') AS key_id, count(*) AS count
FROM jobs
WHERE arguments LIKE '{"$encrypted":%'
GROUP BY 1
ORDER BY 1
