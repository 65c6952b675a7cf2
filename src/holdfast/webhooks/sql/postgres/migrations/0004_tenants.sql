-- "No tenant" is the tenant `default` from now on. A change of the type also rewrites the rows that
-- triggers protect from updates.
DROP INDEX holdfast.webhook_subscriptions_tenant;
DROP INDEX holdfast.webhook_dead_letters_tenant;

ALTER TABLE holdfast.webhook_subscriptions
    ALTER COLUMN tenant TYPE text COLLATE "C" USING coalesce(tenant, 'default'),
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN tenant SET DEFAULT 'default';
ALTER TABLE holdfast.webhook_events
    ALTER COLUMN tenant TYPE text COLLATE "C" USING coalesce(tenant, 'default'),
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN tenant SET DEFAULT 'default';
ALTER TABLE holdfast.webhook_sagas
    ALTER COLUMN tenant TYPE text COLLATE "C" USING coalesce(tenant, 'default'),
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN tenant SET DEFAULT 'default';
ALTER TABLE holdfast.webhook_dead_letters
    ALTER COLUMN tenant TYPE text COLLATE "C" USING coalesce(tenant, 'default'),
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN tenant SET DEFAULT 'default';

CREATE INDEX webhook_subscriptions_tenant ON holdfast.webhook_subscriptions (tenant, id);
CREATE INDEX webhook_dead_letters_tenant ON holdfast.webhook_dead_letters (tenant, id);
