-- name: error_group_place
SELECT ended_at, job_id, turn, now() AS read_at FROM holdfast.error_group_places WHERE name = :name

-- name: advance_error_group_place
-- Only one of those who read the same place advances it.
UPDATE holdfast.error_group_places
SET ended_at = :ended_at, job_id = :job_id, turn = turn + 1
WHERE name = :name AND turn = :turn

-- name: hold_error_group_place
-- Until the transaction ends, nobody else changes what the groups count.
UPDATE holdfast.error_group_places SET turn = turn + 1 WHERE name = :name

-- name: change_error_group
UPDATE holdfast.error_groups
SET state = :state, state_since = :state_since, state_by = :state_by, note = :note,
    resolved_in = :resolved_in
WHERE tenant = :tenant AND fingerprint = :fingerprint

-- name: error_group_counts
SELECT state, count(*) AS error_groups
FROM (SELECT state FROM holdfast.error_groups WHERE tenant = :tenant LIMIT :look_max) AS looked_at
GROUP BY state

-- name: jobs_of_error_group
SELECT job_id, tenant, state, queue, ended_at FROM holdfast.error_group_jobs
WHERE fingerprint = :fingerprint AND job_id < :before
ORDER BY job_id DESC LIMIT :rows_max

-- name: jobs_of_error_group_and_tenant
SELECT job_id, tenant, state, queue, ended_at FROM holdfast.error_group_jobs
WHERE tenant = :tenant AND fingerprint = :fingerprint AND job_id < :before
ORDER BY job_id DESC LIMIT :rows_max
