-- name: delivery_of_job
SELECT
    attempt.tenant, attempt.saga_id, attempt.attempt_no, subscription.url, subscription.preset,
    subscription.policy, subscription.id AS subscription_id, event.id AS event_id, event.event_type,
    event.aggregate_type, event.aggregate_id, event.occurred_at, event.payload, now() AS now,
    job.lease_owner AS worker_id, leased.lease_until
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
