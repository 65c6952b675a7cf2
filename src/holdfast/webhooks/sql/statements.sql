-- name: insert_subscription
INSERT INTO holdfast.webhook_subscriptions (
    id, tenant, url, event_types, preset, policy, created_at
)
VALUES (:id, :tenant, :url, :event_types, :preset, :policy, now())

-- name: find_subscription
SELECT id, tenant, url, event_types, preset FROM holdfast.webhook_subscriptions WHERE id = :id

-- name: set_policy
UPDATE holdfast.webhook_subscriptions SET policy = :policy WHERE id = :id

-- name: insert_secret
INSERT INTO holdfast.webhook_secrets (id, subscription_id, secret, created_at)
VALUES (:id, :subscription_id, :secret, now())

-- name: subscriptions_of_tenant
SELECT id, tenant, url, event_types, preset
FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant
ORDER BY id

-- name: count_subscriptions
SELECT count(*) FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant

-- name: insert_event
INSERT INTO holdfast.webhook_events (
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
)
VALUES (
    :id, :tenant, :event_type, :aggregate_type, :aggregate_id, coalesce(:occurred_at, now()),
    :payload, now()
)
ON CONFLICT (id) DO NOTHING

-- name: find_event
SELECT
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM holdfast.webhook_events WHERE id = :id

-- name: insert_saga
INSERT INTO holdfast.webhook_sagas (
    id, tenant, event_id, subscription_id, next_attempt_at, created_at
)
VALUES (:id, :tenant, :event_id, :subscription_id, now(), now())

-- name: requeue_saga
INSERT INTO holdfast.webhook_sagas (
    id, tenant, event_id, subscription_id, next_attempt_at, requeued_from, created_at
)
SELECT :id, tenant, event_id, subscription_id, now(), id, now()
FROM holdfast.webhook_dead_letters WHERE id = :dead_letter_id
ON CONFLICT (requeued_from) DO NOTHING

-- name: saga_of_dead_letter
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM holdfast.webhook_sagas WHERE requeued_from = :dead_letter_id

-- name: sagas_of_event
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM holdfast.webhook_sagas WHERE event_id = :event_id
ORDER BY id

-- name: saga_to_decide
SELECT saga.id, saga.status, saga.attempt_count, subscription.policy
FROM holdfast.webhook_sagas AS saga
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.id = :id

-- name: report_of_attempt
SELECT
    attempt.id, attempt.status, attempt.response_status, attempt.error_code,
    coalesce(job.state, ended.state) AS job_state,
    coalesce(job.error_code, ended.error_code) AS job_error_code
FROM holdfast.webhook_attempts AS attempt
LEFT JOIN holdfast.jobs AS job ON job.id = attempt.id
LEFT JOIN holdfast.history AS ended ON ended.id = attempt.id
WHERE attempt.saga_id = :saga_id AND attempt.attempt_no = :attempt_no

-- name: failures_with_code
SELECT count(*) FROM holdfast.webhook_attempts
WHERE saga_id = :saga_id AND error_code = :error_code

-- name: worker_of_job
SELECT lease_owner FROM holdfast.jobs WHERE id = :id

-- name: insert_attempt
INSERT INTO holdfast.webhook_attempts (id, saga_id, attempt_no, guard_id, attempt_at)
VALUES (:id, :saga_id, :attempt_no, :guard_id, now())

-- name: guard_of_attempt
SELECT guard_id FROM holdfast.webhook_attempts WHERE saga_id = :saga_id AND attempt_no = :attempt_no

-- name: set_guard
UPDATE holdfast.webhook_attempts SET guard_id = :guard_id WHERE id = :id AND status = 'Pending'

-- name: put_in_flight
UPDATE holdfast.webhook_sagas
SET status = 'InFlight', attempt_count = :attempt_no, next_attempt_at = NULL
WHERE id = :id AND status = 'Pending'

-- name: put_off
UPDATE holdfast.webhook_sagas
SET status = 'Pending', next_attempt_at = holdfast.in_seconds(:seconds)
WHERE id = :id AND status = 'InFlight'

-- name: end_delivered
UPDATE holdfast.webhook_sagas
SET status = 'Delivered', ended_at = now()
WHERE id = :id AND status = 'InFlight'

-- name: insert_dead_letter
INSERT INTO holdfast.webhook_dead_letters (
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
)
SELECT
    :id, saga.tenant, saga.id, saga.event_id, saga.subscription_id, :final_error_code, now(),
    event.payload
FROM holdfast.webhook_sagas AS saga
JOIN holdfast.webhook_events AS event ON event.id = saga.event_id
WHERE saga.id = :saga_id

-- name: end_dead_lettered
UPDATE holdfast.webhook_sagas
SET status = 'DeadLettered', ended_at = now()
WHERE id = :id AND status = 'InFlight'

-- name: delivery_of_job
SELECT
    attempt.saga_id, attempt.attempt_no, subscription.url, subscription.preset,
    subscription.policy, subscription.id AS subscription_id, event.id AS event_id, event.event_type,
    event.aggregate_type, event.aggregate_id, event.occurred_at, event.payload, now() AS now,
    job.lease_owner AS worker_id, leased.lease_until
FROM holdfast.webhook_attempts AS attempt
JOIN holdfast.jobs AS job ON job.id = attempt.id
JOIN holdfast.webhook_delivery_jobs AS leased ON leased.id = attempt.id
JOIN holdfast.webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
JOIN holdfast.webhook_events AS event ON event.id = saga.event_id
WHERE attempt.id = :id AND attempt.status = 'Pending'

-- name: secrets_of_subscription
SELECT secret FROM holdfast.webhook_secrets WHERE subscription_id = :subscription_id ORDER BY id

-- name: report
UPDATE holdfast.webhook_attempts
SET
    status = :status, response_status = :response_status, error_code = :error_code,
    ended_at = now()
WHERE id = :id AND status = 'Pending'

-- name: log_attempt
INSERT INTO holdfast.webhook_attempt_log (
    attempt_id, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
)
VALUES (
    :attempt_id, :saga_id, :duration_ms, :response_status, :response_headers, :response_body,
    :error_code, :error_text, now()
)

-- name: attempts_of_saga
SELECT
    job.id, job.saga_id, attempt.attempt_no, job.status, job.lease_until, job.attempt_at,
    attempt.ended_at, job.response_status, job.error_code,
    log.error_text, log.duration_ms, log.response_headers, log.response_body
FROM holdfast.webhook_attempts AS attempt
JOIN holdfast.webhook_delivery_jobs AS job ON job.id = attempt.id
LEFT JOIN holdfast.webhook_attempt_log AS log ON log.attempt_id = attempt.id
WHERE attempt.saga_id = :saga_id
ORDER BY attempt.attempt_no

-- name: dead_letters_of_tenant
SELECT
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM holdfast.webhook_dead_letters
WHERE tenant = :tenant
ORDER BY id DESC
LIMIT :rows_max
