-- name: claim_hash
INSERT INTO holdfast.compute_hashes (inputs_hash, tenant_id, job_id)
VALUES (:inputs_hash, :tenant_id, :job_id)
-- The update changes nothing, but waits for a concurrent claim of the same hash and locks the row.
ON CONFLICT (inputs_hash) DO UPDATE SET inputs_hash = excluded.inputs_hash
RETURNING job_id

-- name: give_hash
UPDATE holdfast.compute_hashes SET job_id = :job_id WHERE inputs_hash = :inputs_hash

-- name: insert_job
INSERT INTO holdfast.compute_jobs
    (id, tenant_id, app_id, definition, version, inputs_hash, payload_json, priority, created_at)
VALUES (
    :id, :tenant_id, :app_id, :definition, :version, :inputs_hash, :payload_json, :priority, now()
)

-- name: adopt_job
INSERT INTO holdfast.compute_jobs
    (id, tenant_id, app_id, definition, version, inputs_hash, payload_json, priority, created_at)
SELECT :id, tenant_id, app_id, definition, version, inputs_hash, payload_json, priority, now()
FROM holdfast.compute_jobs
WHERE inputs_hash = :inputs_hash
ORDER BY created_at DESC
LIMIT 1
ON CONFLICT (id) DO NOTHING

-- name: find_request
SELECT id, tenant_id, app_id, definition, version, inputs_hash, payload_json, priority
FROM holdfast.compute_jobs
WHERE id = :id

-- name: find_job
SELECT id, tenant_id, status, attempts, last_error, created_at, started_at, ended_at
FROM holdfast.job
WHERE id = :id

-- name: find_result
SELECT outputs_json, score FROM holdfast.compute_results WHERE job_id = :job_id

-- name: find_answer
SELECT result.job_id
FROM holdfast.compute_results AS result
JOIN holdfast.compute_jobs AS request ON request.id = result.job_id
WHERE request.inputs_hash = :inputs_hash
ORDER BY request.created_at
LIMIT 1

-- name: insert_result
INSERT INTO holdfast.compute_results (id, job_id, outputs_json, score, attempts, created_at)
VALUES (:id, :job_id, :outputs_json, :score, :attempts, now())

-- name: insert_failure
INSERT INTO holdfast.compute_failures (job_id, code, text, errors, attempts, created_at)
SELECT id, :code, :text, :errors, :attempts, now() FROM holdfast.compute_jobs WHERE id = :job_id

-- name: insert_artifact
INSERT INTO holdfast.compute_artifacts
    (id, job_id, kind, url, media_type, content, expires_at)
VALUES (:id, :job_id, :kind, :url, :media_type, :content, :expires_at)

-- name: artifacts_of_job
SELECT kind, url, media_type, expires_at FROM holdfast.compute_artifacts
WHERE job_id = :job_id
ORDER BY id

-- name: find_artifact
SELECT artifact.media_type, artifact.content, request.tenant_id
FROM holdfast.compute_artifacts AS artifact
JOIN holdfast.compute_jobs AS request ON request.id = artifact.job_id
WHERE artifact.id = :id AND artifact.content IS NOT NULL
    AND (artifact.expires_at IS NULL OR artifact.expires_at > now())

-- name: count
INSERT INTO holdfast.compute_counters AS counter
    (tenant_id, definition, version, received, completed, abandoned, failed, solved, latency_ms)
VALUES (
    :tenant_id, :definition, :version,
    :received, :completed, :abandoned, :failed, :solved, :latency_ms
)
ON CONFLICT (tenant_id, definition, version) DO UPDATE SET
    received = counter.received + excluded.received,
    completed = counter.completed + excluded.completed,
    abandoned = counter.abandoned + excluded.abandoned,
    failed = counter.failed + excluded.failed,
    solved = counter.solved + excluded.solved,
    latency_ms = counter.latency_ms + excluded.latency_ms

-- name: counters_of_tenant
SELECT definition, version, received, completed, abandoned, failed, solved, latency_ms
FROM holdfast.compute_counters
WHERE tenant_id = :tenant_id
ORDER BY definition, version

-- name: counters_of_all
SELECT definition, version, received, completed, abandoned, failed, solved, latency_ms
FROM holdfast.compute_counters
ORDER BY definition, version
