-- The orchestrator's job that checks on the attempt, so that a report can make it due.
ALTER TABLE webhook_attempts ADD COLUMN guard_id TEXT CHECK (length(guard_id) = 36);
