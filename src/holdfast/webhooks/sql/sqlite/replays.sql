-- name: next_replay
SELECT id, tenant, subscription_id, until, after_at, after_id
FROM webhook_replays AS replay
WHERE ended_at IS NULL AND (
    SELECT count(*) FROM (
        SELECT 1 FROM webhook_sagas
        WHERE replay_id = replay.id AND status = 'Pending' LIMIT :waiting_max
    )
) < :waiting_max
ORDER BY stepped_at
LIMIT 1

-- name: replay_events
INSERT INTO webhook_sagas (
    id, tenant, event_id, subscription_id, next_attempt_at, replay_id, created_at
)
SELECT
    printf( -- a UUIDv7
        '%08x-%04x-7%03x-%04x-%s', milliseconds >> 16, milliseconds & 0xffff, random() & 0xfff,
        0x8000 | (random() & 0x3fff), lower(hex(randomblob(6)))
    ),
    event.tenant, event.id, subscription.id, now(), :replay_id, now()
FROM json_each(:ids) AS given
JOIN webhook_events AS event ON event.tenant = :tenant AND event.id = given.value
JOIN webhook_subscriptions AS subscription
    ON subscription.tenant = event.tenant AND subscription.deleted_at IS NULL
    AND subscription.disabled_at IS NULL
    AND subscription.id = coalesce(:subscription_id, subscription.id)
    AND (
        json_array_length(subscription.event_types) = 0
        OR EXISTS (
            SELECT 1 FROM json_each(subscription.event_types) AS wanted
            WHERE wanted.value = event.event_type
        )
    )
CROSS JOIN (SELECT strftime('%s', now()) * 1000 + substr(now(), 21, 3) AS milliseconds)
WHERE true
ON CONFLICT (replay_id, event_id, subscription_id) WHERE replay_id IS NOT NULL DO NOTHING

-- name: count_replay
SELECT count(DISTINCT given.id) AS events, count(subscription.id) AS sagas
FROM (
    SELECT id, tenant, event_type FROM webhook_events
    WHERE tenant = :tenant AND created_at >= :since AND created_at < :until AND only_for IS NULL
    ORDER BY created_at
    LIMIT :rows_max
) AS given
LEFT JOIN webhook_subscriptions AS subscription
    ON subscription.tenant = given.tenant AND subscription.deleted_at IS NULL
    AND subscription.disabled_at IS NULL
    AND subscription.id = coalesce(:subscription_id, subscription.id)
    AND (
        json_array_length(subscription.event_types) = 0
        OR EXISTS (
            SELECT 1 FROM json_each(subscription.event_types) AS wanted
            WHERE wanted.value = given.event_type
        )
    )
