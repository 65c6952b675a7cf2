-- name: insert_subscription
INSERT INTO holdfast.webhook_subscriptions (
    id, tenant, url, event_types, preset, policy, created_at
)
VALUES (:id, :tenant, :url, :event_types, :preset, :policy, now())

-- name: find_subscription
SELECT id, tenant, url, event_types, preset, disabled_at
FROM holdfast.webhook_subscriptions WHERE id = :id

-- name: set_policy
UPDATE holdfast.webhook_subscriptions SET policy = :policy WHERE id = :id

-- name: subscriptions_of_tenant
SELECT id, tenant, url, event_types, preset, disabled_at
FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant
ORDER BY id

-- name: count_subscriptions
SELECT count(*) FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant AND disabled_at IS NULL

-- name: insert_event
INSERT INTO holdfast.webhook_events (
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
)
VALUES (
    :id, :tenant, :event_type, :aggregate_type, :aggregate_id, coalesce(:occurred_at, now()),
    :payload, now()
)
ON CONFLICT (tenant, id) DO NOTHING
RETURNING
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at

-- name: find_event
SELECT
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM holdfast.webhook_events WHERE tenant = :tenant AND id = :id

-- name: has_dead_letter
SELECT 1 FROM holdfast.webhook_dead_letters
WHERE id = :id AND tenant = coalesce(:tenant, tenant)

-- name: saga_of_dead_letter
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM holdfast.webhook_sagas WHERE requeued_from = :dead_letter_id

-- name: sagas_of_event
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    created_at, ended_at
FROM holdfast.webhook_sagas WHERE event_id = :event_id AND tenant = :tenant
ORDER BY created_at, subscription_id, id

-- name: report
UPDATE holdfast.webhook_attempts
SET
    status = :status, response_status = :response_status, error_code = :error_code,
    ended_at = now()
WHERE id = :id AND status = 'Pending'

-- name: log_attempt
INSERT INTO holdfast.webhook_attempt_log (
    attempt_id, tenant, saga_id, duration_ms, response_status, response_headers, response_body,
    error_code, error_text, logged_at
)
VALUES (
    :attempt_id, :tenant, :saga_id, :duration_ms, :response_status, :response_headers,
    :response_body, :error_code, :error_text, now()
)

-- name: dead_letters_of_tenant
SELECT
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM holdfast.webhook_dead_letters
WHERE tenant = :tenant
ORDER BY id DESC
LIMIT :rows_max

-- name: look
SELECT
    (
        SELECT min(next_attempt_at) FROM holdfast.webhook_sagas WHERE status = 'Pending'
    ) AS next_attempt_at,
    (
        SELECT min(check_at) FROM holdfast.webhook_attempts WHERE status = 'Pending'
    ) AS check_at,
    (
        -- With EXISTS, the planner takes a scan of the whole table for cheap.
        SELECT id FROM holdfast.webhook_attempts WHERE status <> 'Pending' AND NOT judged
        ORDER BY id LIMIT 1
    ) IS NOT NULL AS reported,
    now() AS now
