-- name: allow_deletes
INSERT INTO webhook_retention (deletes) VALUES (1)

-- name: forbid_deletes
DELETE FROM webhook_retention

-- name: old_sagas
SELECT id FROM (
    SELECT id FROM webhook_sagas
    WHERE status IN ('Delivered', 'Canceled') AND ended_at < in_seconds(-:kept_seconds)
    ORDER BY ended_at LIMIT :rows_max
)
UNION ALL
SELECT id FROM (
    SELECT id FROM webhook_sagas
    WHERE status = 'DeadLettered' AND ended_at < in_seconds(-:dead_kept_seconds)
    ORDER BY ended_at LIMIT :rows_max
)

-- name: delete_attempt_log
DELETE FROM webhook_attempt_log WHERE attempt_id IN (
    SELECT id FROM webhook_attempts WHERE saga_id IN (SELECT value FROM json_each(:ids))
)

-- name: delete_attempts
DELETE FROM webhook_attempts WHERE saga_id IN (SELECT value FROM json_each(:ids))

-- name: delete_dead_letters
DELETE FROM webhook_dead_letters WHERE saga_id IN (SELECT value FROM json_each(:ids))

-- name: delete_sagas
DELETE FROM webhook_sagas WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING tenant, event_id

-- name: delete_events
DELETE FROM webhook_events
WHERE (tenant, id) IN (
    SELECT json_extract(value, '$.tenant'), json_extract(value, '$.event_id')
    FROM json_each(:of_events)
)
    AND created_at < in_seconds(-:kept_seconds)
    AND NOT EXISTS (
        SELECT 1 FROM webhook_sagas AS saga
        WHERE saga.event_id = webhook_events.id AND saga.tenant = webhook_events.tenant
    )

-- name: delete_unwanted_events
DELETE FROM webhook_events
WHERE (tenant, id) IN (
    SELECT tenant, id FROM webhook_events AS old
    WHERE old.created_at < in_seconds(-:all_kept_seconds) AND NOT EXISTS (
        SELECT 1 FROM webhook_sagas AS saga
        WHERE saga.event_id = old.id AND saga.tenant = old.tenant
    )
    ORDER BY old.created_at LIMIT :rows_max
)

-- name: delete_replays
DELETE FROM webhook_replays WHERE id IN (
    SELECT id FROM webhook_replays WHERE ended_at < in_seconds(-:kept_seconds)
    ORDER BY ended_at LIMIT :rows_max
)

-- name: old_subscriptions
SELECT id FROM webhook_subscriptions AS subscription
WHERE deleted_at < in_seconds(-:all_kept_seconds) AND NOT EXISTS (
    SELECT 1 FROM webhook_sagas WHERE subscription_id = subscription.id
)
ORDER BY deleted_at LIMIT :rows_max

-- name: delete_secrets
DELETE FROM webhook_secrets WHERE subscription_id IN (SELECT value FROM json_each(:ids))

-- name: delete_subscriptions
DELETE FROM webhook_subscriptions WHERE id IN (SELECT value FROM json_each(:ids))
