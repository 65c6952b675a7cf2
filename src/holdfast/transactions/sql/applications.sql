-- name: application_version
SELECT coalesce(max(version), 0) AS version FROM holdfast.application_steps
WHERE application = :application

-- name: record_step
INSERT INTO holdfast.application_steps (application, version, name, applied_at)
VALUES (:application, :version, :name, now())
