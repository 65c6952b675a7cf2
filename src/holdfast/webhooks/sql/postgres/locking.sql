-- name: saga_to_decide
SELECT saga.id, saga.status, saga.attempt_count, subscription.policy
FROM holdfast.webhook_sagas AS saga
JOIN holdfast.webhook_subscriptions AS subscription ON subscription.id = saga.subscription_id
WHERE saga.id = :id
FOR NO KEY UPDATE OF saga
