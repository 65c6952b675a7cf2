-- name: requeue
INSERT INTO webhook_sagas (
    id, tenant, event_id, subscription_id, next_attempt_at, requeued_from, created_at
)
SELECT
    printf( -- a UUIDv7
        '%08x-%04x-7%03x-%04x-%s', milliseconds >> 16, milliseconds & 0xffff, random() & 0xfff,
        0x8000 | (random() & 0x3fff), lower(hex(randomblob(6)))
    ),
    tenant, event_id, subscription_id, now(), id, now()
FROM webhook_dead_letters
CROSS JOIN (SELECT strftime('%s', now()) * 1000 + substr(now(), 21, 3) AS milliseconds)
WHERE id = :dead_letter_id
ON CONFLICT (requeued_from) WHERE requeued_from IS NOT NULL DO NOTHING

-- name: disable
UPDATE webhook_subscriptions
SET
    disabled_because = CASE WHEN disabled_at IS NULL THEN :because ELSE disabled_because END,
    is_stopping = is_stopping OR disabled_at IS NULL,
    disabled_at = coalesce(disabled_at, now())
WHERE id = :id AND deleted_at IS NULL
RETURNING 1

-- name: cancel_saga
UPDATE webhook_sagas SET status = 'Canceled', next_attempt_at = NULL, ended_at = now()
WHERE id = :id AND status IN ('Pending', 'InFlight')
RETURNING 1
