-- name: saga_to_decide
SELECT
    saga.id, saga.status, saga.attempt_count,
    (
        SELECT preset FROM holdfast.webhook_subscriptions
        WHERE webhook_subscriptions.id = saga.subscription_id
    ) AS preset,
    (
        SELECT policy FROM holdfast.webhook_subscriptions
        WHERE webhook_subscriptions.id = saga.subscription_id
    ) AS policy
FROM holdfast.webhook_sagas AS saga WHERE saga.id = :id
FOR NO KEY UPDATE
