-- The settings of the application that made the subscription. Existing subscriptions get the defaults,
-- and keep plain HTTP if their URL has it.
ALTER TABLE holdfast.webhook_subscriptions ADD COLUMN policy json NOT NULL DEFAULT '{
    "https_only": true, "allow_private_addresses": false, "timeout_seconds": 15,
    "guard_seconds": 60, "retry": {
        "max_attempts": 8, "delays": [5, 300, 1800, 7200, 18000, 36000, 36000], "jitter": 0.2
    }
}';

UPDATE holdfast.webhook_subscriptions
SET policy = jsonb_set(policy::jsonb, '{https_only}', 'false')::json
WHERE lower(url) LIKE 'http:%';
