-- name: add_secret
SELECT holdfast.add_webhook_secret(:id, :tenant, :subscription_id, :key_id, :ciphertext)

-- name: expire_secrets
SELECT holdfast.expire_webhook_secrets(:tenant, :subscription_id, :keep_seconds)

-- name: reencrypt_secret
SELECT WHERE holdfast.reencrypt_webhook_secret(:id, :old, :key_id, :ciphertext)

-- name: secrets_by_key
SELECT key_id, count FROM holdfast.count_webhook_secrets()

-- name: forget_secrets
SELECT holdfast.forget_webhook_secrets()
