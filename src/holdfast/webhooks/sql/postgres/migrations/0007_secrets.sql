-- A secret is encrypted with the secret key `key_id`. Older secrets stay in plaintext until `holdfast
-- secrets reencrypt`. A secret that was rotated out expires at `expires_at`; soon after that, it is
-- removed, at `forgotten_at`.
ALTER TABLE holdfast.webhook_secrets
    ALTER COLUMN secret DROP NOT NULL,
    ADD COLUMN tenant text COLLATE "C",
    ADD COLUMN key_id text COLLATE "C",
    ADD COLUMN ciphertext bytea,
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN forgotten_at timestamptz;

UPDATE holdfast.webhook_secrets AS secret
SET tenant = subscription.tenant
FROM holdfast.webhook_subscriptions AS subscription
WHERE subscription.id = secret.subscription_id;

ALTER TABLE holdfast.webhook_secrets
    ALTER COLUMN tenant SET NOT NULL,
    ADD CONSTRAINT webhook_secrets_in_one_form CHECK (
        (key_id IS NULL) = (ciphertext IS NULL)
        AND (secret IS NULL OR ciphertext IS NULL)
        AND (secret IS NULL AND ciphertext IS NULL) = (forgotten_at IS NOT NULL)
    );

CREATE INDEX webhook_secrets_expiring ON holdfast.webhook_secrets (expires_at)
    WHERE forgotten_at IS NULL;

CREATE TRIGGER webhook_secrets_are_encrypted
BEFORE INSERT ON holdfast.webhook_secrets FOR EACH ROW
WHEN (NEW.secret IS NOT NULL)
EXECUTE FUNCTION holdfast.webhook_refuse('a new secret must be encrypted');

CREATE FUNCTION holdfast.add_webhook_secret(
    new_id uuid, of_tenant text, of_subscription uuid, new_key_id text, new_ciphertext bytea
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.webhook_secrets (
        id, tenant, subscription_id, key_id, ciphertext, created_at
    )
    SELECT new_id, tenant, id, new_key_id, new_ciphertext, now()
    FROM holdfast.webhook_subscriptions
    WHERE id = of_subscription AND tenant = of_tenant
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'subscription % does not exist', of_subscription
            USING ERRCODE = 'foreign_key_violation';
    END IF;
END
$$;

-- Secrets that expire earlier stay that way.
CREATE FUNCTION holdfast.expire_webhook_secrets(
    of_tenant text, of_subscription uuid, keep_seconds double precision
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_secrets
    SET expires_at = least(expires_at, now() + make_interval(secs => keep_seconds))
    WHERE subscription_id = of_subscription AND tenant = of_tenant
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant);
END
$$;

-- Changes the row only if it is still what the caller decrypted.
CREATE FUNCTION holdfast.reencrypt_webhook_secret(
    row_id uuid, old_ciphertext bytea, new_key_id text, new_ciphertext bytea
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.webhook_secrets
    SET secret = NULL, key_id = new_key_id, ciphertext = new_ciphertext
    WHERE id = row_id AND ciphertext IS NOT DISTINCT FROM old_ciphertext
        AND forgotten_at IS NULL;
    RETURN FOUND;
END
$$;

CREATE FUNCTION holdfast.forget_webhook_secrets() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten bigint;
BEGIN
    UPDATE holdfast.webhook_secrets
    SET secret = NULL, key_id = NULL, ciphertext = NULL, forgotten_at = now()
    WHERE expires_at <= now() AND forgotten_at IS NULL;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- For roles that see nothing else of the secrets.
CREATE FUNCTION holdfast.count_webhook_secrets() RETURNS TABLE (key_id text, count bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT secret.key_id, count(*)
    FROM holdfast.webhook_secrets AS secret
    WHERE secret.forgotten_at IS NULL
    GROUP BY secret.key_id
    ORDER BY secret.key_id
$$;

REVOKE EXECUTE ON FUNCTION
    holdfast.add_webhook_secret(uuid, text, uuid, text, bytea),
    holdfast.expire_webhook_secrets(text, uuid, double precision),
    holdfast.reencrypt_webhook_secret(uuid, bytea, text, bytea),
    holdfast.forget_webhook_secrets(),
    holdfast.count_webhook_secrets()
FROM PUBLIC;
