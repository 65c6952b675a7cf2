-- Applications define their own presets, so any name is allowed. A subscription's policy now includes
-- retries and refusals; write those of the preset that was built in.
ALTER TABLE holdfast.webhook_subscriptions
    DROP CONSTRAINT webhook_subscriptions_preset_check,
    ADD CONSTRAINT webhook_subscriptions_preset_check CHECK (length(preset) BETWEEN 1 AND 200);

UPDATE holdfast.webhook_subscriptions
SET policy = (policy::jsonb || '{
    "retry": {"max_attempts": 5, "delays": [2, 4, 8, 16]}, "refusals_are_permanent": true
}')::json
WHERE preset = 'bpc';
