-- name: attempts_to_check
SELECT
    attempt.id, attempt.saga_id, attempt.attempt_no, subscription.policy,
    coalesce(job.state, ended.state) AS job_state,
    coalesce(job.error_code, ended.error_code) AS job_error_code
FROM webhook_attempts AS attempt
JOIN webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
LEFT JOIN jobs AS job ON job.id = attempt.id
LEFT JOIN history AS ended ON ended.id = attempt.id
WHERE attempt.status = 'Pending' AND attempt.check_at <= now()
ORDER BY attempt.check_at
LIMIT :rows_max

-- name: check_again
UPDATE webhook_attempts SET check_at = in_seconds(given.guard_seconds)
FROM (
    SELECT
        json_extract(value, '$.id') AS id, json_extract(value, '$.guard_seconds') AS guard_seconds
    FROM json_each(:attempts)
) AS given
WHERE webhook_attempts.id = given.id

-- name: report_lost
UPDATE webhook_attempts
SET status = 'Failed', error_code = given.error_code, ended_at = now()
FROM (
    SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.error_code') AS error_code
    FROM json_each(:attempts)
) AS given
WHERE webhook_attempts.id = given.id AND webhook_attempts.status = 'Pending'

-- name: attempts_to_judge
SELECT
    attempt.id, attempt.saga_id, attempt.attempt_no, attempt.response_status, attempt.error_code,
    attempt.retry_after_seconds, attempt.lease_until, attempt.worker_id, saga.subscription_id,
    saga.status = 'InFlight' AND saga.attempt_count = attempt.attempt_no AS is_awaited,
    subscription.policy, subscription.disabled_at IS NOT NULL AS disabled,
    subscription.failing_since, now() AS now,
    (
        SELECT count(*) FROM webhook_attempts AS other
        WHERE other.saga_id = attempt.saga_id AND other.error_code = attempt.error_code
    ) AS failures
FROM webhook_attempts AS attempt
JOIN webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE attempt.status <> 'Pending' AND NOT attempt.judged
ORDER BY attempt.id
LIMIT :rows_max

-- name: note_judged
UPDATE webhook_attempts SET judged = 1 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: put_off
UPDATE webhook_sagas SET status = 'Pending', next_attempt_at = in_seconds(given.delay_seconds)
FROM (
    SELECT
        json_extract(value, '$.id') AS id, json_extract(value, '$.delay_seconds') AS delay_seconds
    FROM json_each(:sagas)
) AS given
WHERE webhook_sagas.id = given.id AND webhook_sagas.status = 'InFlight'

-- name: insert_dead_letters
INSERT INTO webhook_dead_letters (
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
)
SELECT
    json_extract(given.value, '$.id'), saga.tenant, saga.id, saga.event_id, saga.subscription_id,
    json_extract(given.value, '$.error_code'), now(), event.payload
FROM json_each(:letters) AS given
JOIN webhook_sagas AS saga ON saga.id = json_extract(given.value, '$.saga_id')
JOIN webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id

-- name: end_sagas
UPDATE webhook_sagas SET status = given.status, next_attempt_at = NULL, ended_at = now()
FROM (
    SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.status') AS status
    FROM json_each(:sagas)
) AS given
WHERE webhook_sagas.id = given.id AND webhook_sagas.status IN ('Pending', 'InFlight')

-- name: due_sagas
SELECT
    saga.id, saga.tenant, subscription.policy, subscription.disabled_at IS NOT NULL AS disabled,
    1 + max(
        saga.attempt_count,
        coalesce((SELECT max(attempt_no) FROM webhook_attempts WHERE saga_id = saga.id), 0)
    ) AS attempt_no
FROM webhook_sagas AS saga
JOIN webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.status = 'Pending' AND saga.next_attempt_at <= now()
ORDER BY saga.next_attempt_at
LIMIT :rows_max

-- name: insert_attempts
INSERT INTO webhook_attempts (id, tenant, saga_id, attempt_no, attempt_at, check_at)
SELECT
    json_extract(value, '$.id'), json_extract(value, '$.tenant'), json_extract(value, '$.saga_id'),
    json_extract(value, '$.attempt_no'), now(), in_seconds(json_extract(value, '$.guard_seconds'))
FROM json_each(:attempts)

-- name: put_in_flight
UPDATE webhook_sagas
SET status = 'InFlight', attempt_count = given.attempt_no, next_attempt_at = NULL
FROM (
    SELECT json_extract(value, '$.saga_id') AS saga_id, json_extract(value, '$.attempt_no') AS attempt_no
    FROM json_each(:attempts)
) AS given
WHERE webhook_sagas.id = given.saga_id AND webhook_sagas.status = 'Pending'

-- name: sagas_to_stop
SELECT saga.id
FROM webhook_subscriptions AS subscription
CROSS JOIN webhook_sagas AS saga
WHERE subscription.is_stopping AND saga.subscription_id = subscription.id
    AND saga.status = 'Pending'
LIMIT :rows_max

-- name: stopping_subscriptions
SELECT id FROM webhook_subscriptions WHERE is_stopping ORDER BY id LIMIT :rows_max

-- name: note_stopped
UPDATE webhook_subscriptions SET is_stopping = 0
WHERE id = :id AND is_stopping AND NOT EXISTS (
    SELECT 1 FROM webhook_sagas WHERE subscription_id = :id AND status = 'Pending'
)

-- name: note_results
UPDATE webhook_subscriptions
SET failing_since = CASE WHEN given.failed THEN coalesce(failing_since, now()) END
FROM (
    SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.failed') AS failed
    FROM json_each(:results)
) AS given
WHERE webhook_subscriptions.id = given.id
