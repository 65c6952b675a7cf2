-- name: free_request
SELECT holdfast.free_request(:scope, :key, :token)

-- name: delete_expired_requests
SELECT FROM holdfast.delete_expired_requests(:rows_max)
