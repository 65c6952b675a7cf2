-- name: leased_with
SELECT {leased} FROM holdfast.jobs
WHERE id = :job_id AND fence = :fence AND lease_owner IS NOT NULL

-- name: leases_of
SELECT lease_owner, {leased} FROM holdfast.jobs
WHERE state = 'running' AND lease_owner = ANY (:workers::text[])
ORDER BY priority, run_at, id

-- name: assign
UPDATE holdfast.jobs
SET lease_owner = (:workers::text[])[width_bucket(id, :ids::uuid[])]
WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
    AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
RETURNING id
