-- name: add_secret
INSERT INTO webhook_secrets (id, tenant, subscription_id, key_id, ciphertext, created_at)
SELECT :id, tenant, id, :key_id, :ciphertext, now()
FROM webhook_subscriptions WHERE id = :subscription_id AND tenant = :tenant

-- name: expire_secrets
UPDATE webhook_secrets
SET expires_at = min(coalesce(expires_at, in_seconds(:keep_seconds)), in_seconds(:keep_seconds))
WHERE subscription_id = :subscription_id AND tenant = :tenant

-- name: reencrypt_secret
UPDATE webhook_secrets
SET secret = NULL, key_id = :key_id, ciphertext = :ciphertext
WHERE id = :id AND ciphertext IS :old AND forgotten_at IS NULL

-- name: forget_secrets
UPDATE webhook_secrets
SET secret = NULL, key_id = NULL, ciphertext = NULL, forgotten_at = now()
WHERE expires_at <= now() AND forgotten_at IS NULL
