-- Applications define presets of their own, so any name will do. Retries and refusals are a part of a
-- subscription's policy from now on: those of the preset that the code knew are written there.
ALTER TABLE holdfast.webhook_subscriptions
    DROP CONSTRAINT webhook_subscriptions_preset_check,
    ADD CONSTRAINT webhook_subscriptions_preset_check CHECK (length(preset) BETWEEN 1 AND 200);

UPDATE holdfast.webhook_subscriptions
SET policy = (policy::jsonb || '{
    "retry": {"max_attempts": 5, "delays": [2, 4, 8, 16]}, "refusals_are_permanent": true
}')::json
WHERE preset = 'bpc';
