-- name: leased_with
SELECT json_group_array(json_array(rowid, {due}, {probes_now}, suspect, lease_owner, started_at))
FROM jobs WHERE id = :id AND fence = :fence AND state = 'running'

-- name: leases_of
SELECT json_group_array(json_array(rowid, {due}, {probes_now}, suspect, lease_owner, started_at))
FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND lease_owner IN (SELECT value FROM json_each(:workers))

-- name: assign
UPDATE jobs SET lease_owner = :worker WHERE id = :id AND fence = :fence AND state = 'running'
