-- name: free_request
DELETE FROM api_requests
WHERE scope = :scope AND key = :key AND token = :token AND status IS NULL

-- name: delete_expired_requests
DELETE FROM api_requests
WHERE (scope, key) IN (
    SELECT scope, key FROM api_requests WHERE expires_at <= now()
    ORDER BY expires_at LIMIT :rows_max
)
