-- name: next_replay
SELECT id, tenant, subscription_id, until, after_at, after_id
FROM holdfast.webhook_replays AS replay
WHERE ended_at IS NULL AND (
    SELECT count(*) FROM (
        SELECT FROM holdfast.webhook_sagas
        WHERE replay_id = replay.id AND status = 'Pending' LIMIT :waiting_max
    ) AS waiting
) < :waiting_max
ORDER BY stepped_at
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED

-- name: replay_events
INSERT INTO holdfast.webhook_sagas (
    id, tenant, event_id, subscription_id, next_attempt_at, replay_id, created_at
)
SELECT
    holdfast.webhook_new_id(), event.tenant, event.id, subscription.id, now(), :replay_id, now()
FROM json_array_elements_text(:ids) AS given (id)
JOIN holdfast.webhook_events AS event
    ON event.tenant = :tenant AND event.id = given.id::uuid
JOIN holdfast.webhook_subscriptions AS subscription
    ON subscription.tenant = event.tenant AND subscription.deleted_at IS NULL
    AND subscription.disabled_at IS NULL
    AND subscription.id = coalesce(:subscription_id, subscription.id)
    AND (
        json_array_length(subscription.event_types) = 0
        OR subscription.event_types::jsonb ? event.event_type
    )
ON CONFLICT (replay_id, event_id, subscription_id) WHERE replay_id IS NOT NULL DO NOTHING

-- name: count_replay
SELECT count(DISTINCT given.id) AS events, count(subscription.id) AS sagas
FROM (
    SELECT id, tenant, event_type FROM holdfast.webhook_events
    WHERE tenant = :tenant AND created_at >= :since AND created_at < :until AND only_for IS NULL
    ORDER BY created_at
    LIMIT :rows_max
) AS given
LEFT JOIN holdfast.webhook_subscriptions AS subscription
    ON subscription.tenant = given.tenant AND subscription.deleted_at IS NULL
    AND subscription.disabled_at IS NULL
    AND subscription.id = coalesce(:subscription_id, subscription.id)
    AND (
        json_array_length(subscription.event_types) = 0
        OR subscription.event_types::jsonb ? given.event_type
    )
