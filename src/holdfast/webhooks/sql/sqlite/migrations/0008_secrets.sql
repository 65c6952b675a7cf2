-- A secret is encrypted with the secret key `key_id`. Older secrets stay in plaintext until `holdfast
-- secrets reencrypt`. A secret that was rotated out expires at `expires_at`; soon after that, it is
-- removed, at `forgotten_at`.
-- SQLite can't drop a NOT NULL, so replace the table.
ALTER TABLE webhook_secrets RENAME TO webhook_secrets_before;

DROP INDEX webhook_secrets_subscription;

CREATE TABLE webhook_secrets (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    tenant TEXT NOT NULL,
    subscription_id TEXT NOT NULL REFERENCES webhook_subscriptions,
    secret TEXT,
    key_id TEXT,
    ciphertext BLOB,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    forgotten_at TEXT,
    CHECK ((key_id IS NULL) = (ciphertext IS NULL)),
    CHECK (secret IS NULL OR ciphertext IS NULL),
    CHECK ((secret IS NULL AND ciphertext IS NULL) = (forgotten_at IS NOT NULL))
) STRICT;

INSERT INTO webhook_secrets (id, tenant, subscription_id, secret, created_at)
SELECT secret.id, subscription.tenant, secret.subscription_id, secret.secret, secret.created_at
FROM webhook_secrets_before AS secret
JOIN webhook_subscriptions AS subscription ON subscription.id = secret.subscription_id;

DROP TABLE webhook_secrets_before;

CREATE INDEX webhook_secrets_subscription ON webhook_secrets (subscription_id);
CREATE INDEX webhook_secrets_expiring ON webhook_secrets (expires_at)
    WHERE forgotten_at IS NULL;

CREATE TRIGGER webhook_secrets_are_encrypted BEFORE INSERT ON webhook_secrets
WHEN new.secret IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'webhook_secrets: a new secret must be encrypted');
END;
