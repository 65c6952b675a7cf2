-- name: insert_subscription
INSERT INTO holdfast.webhook_subscriptions (
    id, tenant, url, event_types, preset, policy, created_at
)
VALUES (:id, :tenant, :url, :event_types, :preset, :policy, now())

-- name: find_subscription
SELECT
    id, tenant, url, event_types, preset, policy, created_at, disabled_at, disabled_because,
    failing_since
FROM holdfast.webhook_subscriptions
WHERE id = :id AND tenant = coalesce(:tenant, tenant) AND deleted_at IS NULL

-- name: change_subscription
UPDATE holdfast.webhook_subscriptions
SET url = :url, event_types = :event_types
WHERE id = :id AND deleted_at IS NULL

-- name: enable
UPDATE holdfast.webhook_subscriptions
SET disabled_at = NULL, disabled_because = NULL, failing_since = NULL, is_stopping = false
WHERE id = :id AND deleted_at IS NULL

-- name: delete_subscription
UPDATE holdfast.webhook_subscriptions
SET
    deleted_at = now(), disabled_at = coalesce(disabled_at, now()), is_stopping = true
WHERE id = :id AND deleted_at IS NULL

-- name: set_policy
UPDATE holdfast.webhook_subscriptions SET policy = :policy WHERE id = :id

-- name: subscriptions_of_tenant
SELECT
    id, tenant, url, event_types, preset, policy, created_at, disabled_at, disabled_because,
    failing_since
FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant AND deleted_at IS NULL AND id > :after
ORDER BY id
LIMIT :rows_max

-- name: count_subscriptions
SELECT count(*) FROM holdfast.webhook_subscriptions
WHERE tenant = :tenant AND deleted_at IS NULL

-- name: insert_event
INSERT INTO holdfast.webhook_events (
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, only_for,
    created_at
)
VALUES (
    :id, :tenant, :event_type, :aggregate_type, :aggregate_id, coalesce(:occurred_at, now()),
    :payload, :only_for, now()
)
ON CONFLICT (tenant, id) DO NOTHING
RETURNING
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at

-- name: find_event
SELECT
    id, tenant, event_type, aggregate_type, aggregate_id, occurred_at, payload, created_at
FROM holdfast.webhook_events WHERE tenant = :tenant AND id = :id

-- name: find_dead_letter
SELECT
    id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot
FROM holdfast.webhook_dead_letters
WHERE id = :id AND tenant = coalesce(:tenant, tenant)

-- name: find_saga
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    replay_id, created_at, ended_at
FROM holdfast.webhook_sagas WHERE id = :id AND tenant = coalesce(:tenant, tenant)

-- name: sagas_of_tenant
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    replay_id, created_at, ended_at
FROM holdfast.webhook_sagas
WHERE tenant = :tenant AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: sagas_of_subscription
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    replay_id, created_at, ended_at
FROM holdfast.webhook_sagas
WHERE subscription_id = :subscription_id AND tenant = :tenant AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: is_enabled
SELECT id FROM holdfast.webhook_subscriptions WHERE id = :id AND disabled_at IS NULL

-- name: saga_of_dead_letter
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    replay_id, created_at, ended_at
FROM holdfast.webhook_sagas WHERE requeued_from = :dead_letter_id

-- name: sagas_of_event
SELECT
    id, tenant, event_id, subscription_id, status, attempt_count, next_attempt_at, requeued_from,
    replay_id, created_at, ended_at
FROM holdfast.webhook_sagas WHERE event_id = :event_id AND tenant = :tenant
ORDER BY created_at, subscription_id, id

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
WHERE tenant = :tenant AND id < :before
ORDER BY id DESC
LIMIT :rows_max

-- name: insert_replay
INSERT INTO holdfast.webhook_replays (
    id, tenant, subscription_id, since, until, after_at, after_id, created_at, stepped_at
)
VALUES (
    :id, :tenant, :subscription_id, :since, CASE WHEN :until < now() THEN :until ELSE now() END,
    :since, '00000000-0000-0000-0000-000000000000', now(), now()
)

-- name: find_replay
SELECT id, tenant, subscription_id, since, until, events, sagas, created_at, ended_at
FROM holdfast.webhook_replays WHERE id = :id AND tenant = coalesce(:tenant, tenant)

-- name: advance_replay
UPDATE holdfast.webhook_replays
SET
    after_at = :after_at, after_id = :after_id, events = events + :events,
    sagas = sagas + :started, stepped_at = now()
WHERE id = :id

-- name: end_replay
UPDATE holdfast.webhook_replays
SET events = events + :events, sagas = sagas + :started, stepped_at = now(), ended_at = now()
WHERE id = :id

-- name: events_to_replay
SELECT id, created_at FROM holdfast.webhook_events
WHERE tenant = :tenant AND (created_at, id) > (:after_at, :after_id) AND created_at < :until
    AND only_for IS NULL
ORDER BY created_at, id
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
    (
        SELECT id FROM holdfast.webhook_subscriptions WHERE is_stopping ORDER BY id LIMIT 1
    ) IS NOT NULL AS stopping,
    (
        SELECT id FROM holdfast.webhook_replays WHERE ended_at IS NULL
        ORDER BY stepped_at LIMIT 1
    ) IS NOT NULL AS replaying,
    now() AS now
