-- What the dashboard shows. Without a tenant, the rows of all tenants.

-- name: pages_sagas
SELECT
    saga.id, saga.tenant, saga.status, saga.attempt_count, saga.next_attempt_at, saga.created_at,
    event.event_type, subscription.url
FROM holdfast.webhook_sagas AS saga
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = saga.tenant AND event.id = saga.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.id < :before
ORDER BY saga.id DESC
LIMIT :rows_max

-- name: pages_sagas_of_tenant
SELECT
    saga.id, saga.tenant, saga.status, saga.attempt_count, saga.next_attempt_at, saga.created_at,
    event.event_type, subscription.url
FROM holdfast.webhook_sagas AS saga
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = saga.tenant AND event.id = saga.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.tenant = :tenant AND saga.id < :before
ORDER BY saga.id DESC
LIMIT :rows_max

-- name: pages_saga
SELECT
    saga.id, saga.tenant, saga.event_id, saga.subscription_id, saga.status, saga.attempt_count,
    saga.next_attempt_at, saga.requeued_from, saga.replay_id, saga.created_at, saga.ended_at,
    event.event_type, event.aggregate_type, event.aggregate_id, event.occurred_at, event.payload,
    subscription.url, subscription.disabled_at, subscription.disabled_because,
    letter.id AS letter_id, letter.final_error_code, letter.failed_at,
    origin.saga_id AS requeued_saga, again.id AS next_saga
FROM holdfast.webhook_sagas AS saga
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = saga.tenant AND event.id = saga.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
LEFT JOIN holdfast.webhook_dead_letters AS letter ON letter.saga_id = saga.id
LEFT JOIN holdfast.webhook_dead_letters AS origin ON origin.id = saga.requeued_from
LEFT JOIN holdfast.webhook_sagas AS again ON again.requeued_from = letter.id
WHERE saga.id = :id AND saga.tenant = coalesce(:tenant, saga.tenant)

-- name: pages_subscriptions
SELECT
    id, tenant, url, event_types, preset, policy, created_at, disabled_at, disabled_because,
    failing_since
FROM holdfast.webhook_subscriptions
WHERE deleted_at IS NULL AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: pages_subscriptions_of_tenant
SELECT
    id, tenant, url, event_types, preset, policy, created_at, disabled_at, disabled_because,
    failing_since
FROM holdfast.webhook_subscriptions
WHERE deleted_at IS NULL AND tenant = :tenant AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: pages_sagas_of_subscription
SELECT
    id, status, attempt_count, created_at, ended_at,
    (
        SELECT error_code FROM holdfast.webhook_attempts AS attempt
        WHERE attempt.saga_id = saga.id AND attempt.error_code IS NOT NULL
        ORDER BY attempt.attempt_no DESC LIMIT 1
    ) AS last_error
FROM holdfast.webhook_sagas AS saga
WHERE subscription_id = :id
ORDER BY id DESC
LIMIT :rows_max

-- name: pages_letters
SELECT
    letter.id, letter.tenant, letter.saga_id, letter.event_id, letter.subscription_id,
    letter.final_error_code, letter.failed_at, letter.payload_snapshot, event.event_type,
    subscription.url, again.id AS next_saga
FROM holdfast.webhook_dead_letters AS letter
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = letter.tenant AND event.id = letter.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription
    ON subscription.id = letter.subscription_id
LEFT JOIN holdfast.webhook_sagas AS again ON again.requeued_from = letter.id
WHERE letter.id < :before
ORDER BY letter.id DESC
LIMIT :rows_max

-- name: pages_letters_of_tenant
SELECT
    letter.id, letter.tenant, letter.saga_id, letter.event_id, letter.subscription_id,
    letter.final_error_code, letter.failed_at, letter.payload_snapshot, event.event_type,
    subscription.url, again.id AS next_saga
FROM holdfast.webhook_dead_letters AS letter
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = letter.tenant AND event.id = letter.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription
    ON subscription.id = letter.subscription_id
LEFT JOIN holdfast.webhook_sagas AS again ON again.requeued_from = letter.id
WHERE letter.tenant = :tenant AND letter.id < :before
ORDER BY letter.id DESC
LIMIT :rows_max

-- name: pages_letter
SELECT
    letter.id, letter.tenant, letter.saga_id, letter.event_id, letter.subscription_id,
    letter.final_error_code, letter.failed_at, letter.payload_snapshot, event.event_type,
    subscription.url, again.id AS next_saga
FROM holdfast.webhook_dead_letters AS letter
LEFT JOIN holdfast.webhook_events AS event
    ON event.tenant = letter.tenant AND event.id = letter.event_id
LEFT JOIN holdfast.webhook_subscriptions AS subscription
    ON subscription.id = letter.subscription_id
LEFT JOIN holdfast.webhook_sagas AS again ON again.requeued_from = letter.id
WHERE letter.id = :id AND letter.tenant = coalesce(:tenant, letter.tenant)
