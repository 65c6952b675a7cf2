-- Applications define their own presets, so any name is allowed. A subscription's policy now includes
-- retries and refusals; write those of the preset that was built in. SQLite can't alter a CHECK, so
-- replace the column.
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
