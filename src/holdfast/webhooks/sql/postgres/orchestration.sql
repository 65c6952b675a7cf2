-- name: attempts_to_check
SELECT
    attempt.id, attempt.saga_id, attempt.attempt_no, subscription.policy,
    coalesce(job.state, ended.state) AS job_state,
    coalesce(job.error_code, ended.error_code) AS job_error_code
FROM holdfast.webhook_attempts AS attempt
JOIN holdfast.webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
LEFT JOIN holdfast.jobs AS job ON job.id = attempt.id
LEFT JOIN LATERAL (
    SELECT state, error_code FROM holdfast.history WHERE id = attempt.id
    ORDER BY kept_until DESC LIMIT 1
) AS ended ON true
WHERE attempt.status = 'Pending' AND attempt.check_at <= now()
ORDER BY attempt.check_at
LIMIT :rows_max
FOR NO KEY UPDATE OF attempt SKIP LOCKED

-- name: check_again
UPDATE holdfast.webhook_attempts AS attempt
SET check_at = now() + make_interval(secs => given.guard_seconds)
FROM json_to_recordset(:attempts) AS given (id uuid, guard_seconds double precision)
WHERE attempt.id = given.id

-- name: report_lost
UPDATE holdfast.webhook_attempts AS attempt
SET status = 'Failed', error_code = given.error_code, ended_at = now()
FROM json_to_recordset(:attempts) AS given (id uuid, error_code text)
WHERE attempt.id = given.id AND attempt.status = 'Pending'

-- name: attempts_to_judge
SELECT
    attempt.id, attempt.saga_id, attempt.attempt_no, attempt.response_status, attempt.error_code,
    attempt.retry_after_seconds, attempt.lease_until, attempt.worker_id, saga.subscription_id,
    saga.status = 'InFlight' AND saga.attempt_count = attempt.attempt_no AS is_awaited,
    subscription.policy, subscription.disabled_at IS NOT NULL AS disabled,
    subscription.failing_since, now() AS now,
    (
        SELECT count(*) FROM holdfast.webhook_attempts AS other
        WHERE other.saga_id = attempt.saga_id AND other.error_code = attempt.error_code
    ) AS failures
FROM holdfast.webhook_attempts AS attempt
JOIN holdfast.webhook_sagas AS saga ON saga.id = attempt.saga_id
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE attempt.status <> 'Pending' AND NOT attempt.judged
ORDER BY attempt.id
LIMIT :rows_max
FOR NO KEY UPDATE OF attempt, saga SKIP LOCKED

-- name: note_judged
UPDATE holdfast.webhook_attempts SET judged = true
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids)))

-- name: put_off
UPDATE holdfast.webhook_sagas AS saga
SET status = 'Pending', next_attempt_at = now() + make_interval(secs => given.delay_seconds)
FROM json_to_recordset(:sagas) AS given (id uuid, delay_seconds double precision)
WHERE saga.id = given.id AND saga.status = 'InFlight'

-- name: insert_dead_letters
INSERT INTO holdfast.webhook_dead_letters (
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
)
SELECT
    given.id, saga.tenant, saga.id, saga.event_id, saga.subscription_id, given.error_code, now(),
    event.payload
FROM json_to_recordset(:letters) AS given (id uuid, saga_id uuid, error_code text)
JOIN holdfast.webhook_sagas AS saga ON saga.id = given.saga_id
JOIN holdfast.webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id

-- name: end_sagas
UPDATE holdfast.webhook_sagas AS saga
SET status = given.status, next_attempt_at = NULL, ended_at = now()
FROM json_to_recordset(:sagas) AS given (id uuid, status text)
WHERE saga.id = given.id AND saga.status IN ('Pending', 'InFlight')

-- name: due_sagas
SELECT
    saga.id, saga.tenant, subscription.policy, subscription.disabled_at IS NOT NULL AS disabled,
    1 + greatest(
        saga.attempt_count,
        (SELECT max(attempt_no) FROM holdfast.webhook_attempts WHERE saga_id = saga.id)
    ) AS attempt_no
FROM holdfast.webhook_sagas AS saga
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.status = 'Pending' AND saga.next_attempt_at <= now()
ORDER BY saga.next_attempt_at
LIMIT :rows_max
FOR NO KEY UPDATE OF saga SKIP LOCKED

-- name: insert_attempts
INSERT INTO holdfast.webhook_attempts (id, tenant, saga_id, attempt_no, attempt_at, check_at)
SELECT
    id, tenant, saga_id, attempt_no, now(), now() + make_interval(secs => guard_seconds)
FROM json_to_recordset(:attempts) AS given (
    id uuid, tenant text, saga_id uuid, attempt_no integer, guard_seconds double precision
)

-- name: put_in_flight
UPDATE holdfast.webhook_sagas AS saga
SET status = 'InFlight', attempt_count = given.attempt_no, next_attempt_at = NULL
FROM json_to_recordset(:attempts) AS given (saga_id uuid, attempt_no integer)
WHERE saga.id = given.saga_id AND saga.status = 'Pending'

-- name: sagas_to_stop
SELECT saga.id
FROM holdfast.webhook_subscriptions AS subscription
JOIN holdfast.webhook_sagas AS saga
    ON saga.subscription_id = subscription.id AND saga.status = 'Pending'
WHERE subscription.is_stopping
LIMIT :rows_max
FOR NO KEY UPDATE OF saga SKIP LOCKED

-- name: stopping_subscriptions
SELECT id FROM holdfast.webhook_subscriptions WHERE is_stopping ORDER BY id LIMIT :rows_max

-- name: note_stopped
SELECT holdfast.webhook_subscription_stopped(:id)

-- name: note_results
SELECT holdfast.note_webhook_results(:results)
