-- Applications define presets of their own, so any name will do. Retries and refusals are a part of a
-- subscription's policy from now on: those of the preset that the code knew are written there.
-- SQLite can't alter a CHECK, so the column is made anew.
ALTER TABLE webhook_subscriptions ADD COLUMN any_preset TEXT NOT NULL DEFAULT 'standard'
    CHECK (length(any_preset) BETWEEN 1 AND 200);

UPDATE webhook_subscriptions SET any_preset = preset;

ALTER TABLE webhook_subscriptions DROP COLUMN preset;

ALTER TABLE webhook_subscriptions RENAME COLUMN any_preset TO preset;

UPDATE webhook_subscriptions
SET policy = json_set(
    policy,
    '$.retry', json('{"max_attempts": 5, "delays": [2, 4, 8, 16]}'),
    '$.refusals_are_permanent', json('true')
)
WHERE preset = 'bpc';
