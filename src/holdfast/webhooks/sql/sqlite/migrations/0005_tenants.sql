-- "No tenant" is the tenant `default` from now on. SQLite can't alter a column, so replace it in
-- each table, without the triggers that protect rows from updates.
DROP INDEX webhook_subscriptions_tenant;
DROP INDEX webhook_dead_letters_tenant;
DROP TRIGGER webhook_events_stay;
DROP TRIGGER webhook_dead_letters_stay;
DROP TRIGGER webhook_sagas_stay;

ALTER TABLE webhook_subscriptions ADD COLUMN any_tenant TEXT NOT NULL DEFAULT 'default';
UPDATE webhook_subscriptions SET any_tenant = tenant WHERE tenant IS NOT NULL;
ALTER TABLE webhook_subscriptions DROP COLUMN tenant;
ALTER TABLE webhook_subscriptions RENAME COLUMN any_tenant TO tenant;

ALTER TABLE webhook_events ADD COLUMN any_tenant TEXT NOT NULL DEFAULT 'default';
UPDATE webhook_events SET any_tenant = tenant WHERE tenant IS NOT NULL;
ALTER TABLE webhook_events DROP COLUMN tenant;
ALTER TABLE webhook_events RENAME COLUMN any_tenant TO tenant;

ALTER TABLE webhook_sagas ADD COLUMN any_tenant TEXT NOT NULL DEFAULT 'default';
UPDATE webhook_sagas SET any_tenant = tenant WHERE tenant IS NOT NULL;
ALTER TABLE webhook_sagas DROP COLUMN tenant;
ALTER TABLE webhook_sagas RENAME COLUMN any_tenant TO tenant;

ALTER TABLE webhook_dead_letters ADD COLUMN any_tenant TEXT NOT NULL DEFAULT 'default';
UPDATE webhook_dead_letters SET any_tenant = tenant WHERE tenant IS NOT NULL;
ALTER TABLE webhook_dead_letters DROP COLUMN tenant;
ALTER TABLE webhook_dead_letters RENAME COLUMN any_tenant TO tenant;

CREATE INDEX webhook_subscriptions_tenant ON webhook_subscriptions (tenant, id);
CREATE INDEX webhook_dead_letters_tenant ON webhook_dead_letters (tenant, id);

CREATE TRIGGER webhook_events_stay BEFORE UPDATE ON webhook_events
BEGIN
    SELECT RAISE(ABORT, 'webhook_events: an event never changes');
END;

CREATE TRIGGER webhook_dead_letters_stay BEFORE UPDATE ON webhook_dead_letters
BEGIN
    SELECT RAISE(ABORT, 'webhook_dead_letters: a dead letter never changes');
END;

CREATE TRIGGER webhook_sagas_stay BEFORE UPDATE ON webhook_sagas
WHEN old.status NOT IN ('Pending', 'InFlight')
    OR new.id <> old.id OR new.event_id <> old.event_id
    OR new.subscription_id <> old.subscription_id
    OR new.requeued_from IS NOT old.requeued_from
    OR new.attempt_count < old.attempt_count
BEGIN
    SELECT RAISE(ABORT, 'webhook_sagas: a saga that has ended never changes');
END;
