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
