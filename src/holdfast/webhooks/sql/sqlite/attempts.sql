-- name: delivery_of_job
SELECT
    attempt.tenant, attempt.saga_id, attempt.attempt_no, subscription.url, subscription.preset,
    subscription.policy, subscription.id AS subscription_id, event.id AS event_id, event.event_type,
    event.aggregate_type, event.aggregate_id, event.occurred_at, event.payload, now() AS now,
    job.lease_owner AS worker_id, leased.lease_until, saga.status AS saga_status,
    subscription.disabled_at IS NOT NULL AS disabled
FROM webhook_attempts AS attempt
JOIN jobs AS job ON job.id = attempt.id
JOIN webhook_delivery_jobs AS leased ON leased.id = attempt.id
JOIN webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
JOIN webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id
WHERE attempt.id = :id AND attempt.status = 'Pending'

-- name: attempts_of_saga
SELECT
    job.id, job.saga_id, attempt.attempt_no, job.status, job.lease_until, job.attempt_at,
    attempt.ended_at, job.response_status, job.error_code,
    log.error_text, log.duration_ms, log.response_headers, log.response_body
FROM webhook_attempts AS attempt
JOIN webhook_delivery_jobs AS job ON job.id = attempt.id
LEFT JOIN webhook_attempt_log AS log ON log.attempt_id = attempt.id
WHERE attempt.saga_id = :saga_id AND attempt.tenant = coalesce(:tenant, attempt.tenant)
ORDER BY attempt.attempt_no

-- name: report
UPDATE webhook_attempts
SET
    status = :status, response_status = :response_status, error_code = :error_code,
    retry_after_seconds = :retry_after_seconds, lease_until = leased.lease_until,
    worker_id = leased.worker_id, ended_at = now()
FROM (
    SELECT job.lease_owner AS worker_id, delivery.lease_until
    FROM jobs AS job JOIN webhook_delivery_jobs AS delivery ON delivery.id = job.id
    WHERE job.id = :id
) AS leased
WHERE id = :id AND status = 'Pending'
RETURNING saga_id, attempt_no, worker_id, lease_until
