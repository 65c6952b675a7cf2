-- name: encrypted_jobs_by_key
SELECT arguments #>> '{$encrypted,key}' AS key_id, count(*) AS count
FROM holdfast.jobs
WHERE arguments::text LIKE '{"$encrypted":%'
GROUP BY 1
ORDER BY 1
