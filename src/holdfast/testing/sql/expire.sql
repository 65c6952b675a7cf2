-- A worker that died renews no leases. A sandbox doesn't wait for them to expire.

-- name: on_postgres
UPDATE holdfast.jobs SET lease_expires_at = now() - interval '1 second'
WHERE id = :id AND fence = :fence AND state = 'running'

-- name: on_sqlite
UPDATE jobs SET lease_expires_at = 0
WHERE id = CAST(:id AS text) AND fence = :fence AND state = 'running'
