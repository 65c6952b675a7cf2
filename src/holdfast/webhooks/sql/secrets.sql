-- name: secrets_of_subscription
SELECT id, tenant, secret AS clear, key_id, ciphertext
FROM holdfast.webhook_secrets
WHERE subscription_id = :subscription_id
    AND forgotten_at IS NULL AND (expires_at IS NULL OR expires_at > now())
ORDER BY id

-- name: secrets_by_key
SELECT key_id, count(*) AS count
FROM holdfast.webhook_secrets
WHERE forgotten_at IS NULL
GROUP BY key_id
ORDER BY key_id

-- name: stale_secrets
SELECT id, tenant, key_id, ciphertext, secret AS clear
FROM holdfast.webhook_secrets
WHERE id > :after AND forgotten_at IS NULL AND (key_id IS NULL OR key_id <> :key_id)
ORDER BY id
LIMIT :rows_max
