-- The orchestrator's job that checks on the attempt, so that a report can make it due.
ALTER TABLE holdfast.webhook_attempts ADD COLUMN guard_id uuid;
