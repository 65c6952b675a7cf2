-- Without the view: before version 15, it has the rights of its owner, and roles can't use it.

-- name: delivery_of_job
SELECT
    attempt.tenant, attempt.saga_id, attempt.attempt_no, subscription.url, subscription.preset,
    subscription.policy, subscription.id AS subscription_id, event.id AS event_id, event.event_type,
    event.aggregate_type, event.aggregate_id, event.occurred_at, event.payload, now() AS now,
    job.lease_owner AS worker_id, job.lease_expires_at AS lease_until, saga.status AS saga_status,
    subscription.disabled_at IS NOT NULL AS disabled
FROM holdfast.webhook_attempts AS attempt
JOIN holdfast.jobs AS job ON job.id = attempt.id
JOIN holdfast.webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
JOIN holdfast.webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id
WHERE attempt.id = :id AND attempt.status = 'Pending'

-- name: attempts_of_saga
SELECT
    attempt.id, attempt.saga_id, attempt.attempt_no,
    CASE WHEN attempt.status = 'Pending' AND job.state = 'running' THEN 'Leased'
        ELSE attempt.status END AS status,
    coalesce(job.lease_expires_at, attempt.lease_until) AS lease_until, attempt.attempt_at, attempt.ended_at,
    attempt.response_status, attempt.error_code, log.error_text, log.duration_ms,
    log.response_headers, log.response_body
FROM holdfast.webhook_attempts AS attempt
LEFT JOIN holdfast.jobs AS job ON job.id = attempt.id
LEFT JOIN holdfast.webhook_attempt_log AS log ON log.attempt_id = attempt.id
WHERE attempt.saga_id = :saga_id AND attempt.tenant = coalesce(:tenant, attempt.tenant)
ORDER BY attempt.attempt_no

-- name: report
UPDATE holdfast.webhook_attempts AS attempt
SET
    status = :status, response_status = :response_status, error_code = :error_code,
    retry_after_seconds = :retry_after_seconds, lease_until = job.lease_expires_at,
    worker_id = job.lease_owner, ended_at = now()
FROM holdfast.jobs AS job
WHERE attempt.id = :id AND attempt.status = 'Pending' AND job.id = attempt.id
RETURNING attempt.saga_id, attempt.attempt_no, attempt.worker_id, attempt.lease_until
