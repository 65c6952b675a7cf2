-- The server's clock can't be moved, so time passes by moving everything recorded into the past.

-- name: unguard_jobs
ALTER TABLE holdfast.jobs DISABLE TRIGGER USER

-- name: unguard_history
ALTER TABLE holdfast.history DISABLE TRIGGER USER

-- name: unguard_audit_log
ALTER TABLE holdfast.audit_log DISABLE TRIGGER USER

-- name: jobs
UPDATE holdfast.jobs
SET run_at = run_at - :passed::interval, expires_at = expires_at - :passed::interval,
    created_at = created_at - :passed::interval, started_at = started_at - :passed::interval,
    finished_at = finished_at - :passed::interval,
    lease_expires_at = lease_expires_at - :passed::interval,
    held_run_at = held_run_at - :passed::interval

-- name: history
UPDATE holdfast.history
SET run_at = run_at - :passed::interval, expires_at = expires_at - :passed::interval,
    created_at = created_at - :passed::interval, started_at = started_at - :passed::interval,
    finished_at = finished_at - :passed::interval, kept_until = kept_until - :passed::interval

-- name: attempts
UPDATE holdfast.attempts
SET started_at = started_at - :passed::interval, ended_at = ended_at - :passed::interval

-- name: idempotency_keys
UPDATE holdfast.idempotency_keys SET expires_at = expires_at - :passed::interval

-- name: requeues
UPDATE holdfast.requeues
SET requeued_at = requeued_at - :passed::interval, kept_until = kept_until - :passed::interval

-- name: lanes
UPDATE holdfast.lanes
SET run_at = run_at - :passed::interval, noted_at = noted_at - :passed::interval

-- name: workers
UPDATE holdfast.workers
SET started_at = started_at - :passed::interval, seen_at = seen_at - :passed::interval

-- name: queues
UPDATE holdfast.queues
SET paused_at = paused_at - :passed::interval,
    shortest_since = shortest_since - :passed::interval,
    shortest_seen_at = shortest_seen_at - :passed::interval

-- name: breakers
UPDATE holdfast.breakers
SET opened_at = opened_at - :passed::interval, next_probe_at = next_probe_at - :passed::interval,
    worked_at = worked_at - :passed::interval, changed_at = changed_at - :passed::interval,
    failures = ARRAY(
        SELECT failed_at - :passed::interval
        FROM unnest(failures) WITH ORDINALITY AS failed (failed_at, place)
        ORDER BY place
    )

-- name: api_keys
UPDATE holdfast.api_keys
SET created_at = created_at - :passed::interval, expires_at = expires_at - :passed::interval,
    revoked_at = revoked_at - :passed::interval

-- name: audit_log
UPDATE holdfast.audit_log SET at = at - :passed::interval

-- name: api_requests
UPDATE holdfast.api_requests
SET in_flight_until = in_flight_until - :passed::interval,
    expires_at = expires_at - :passed::interval

-- name: bulk_changes
UPDATE holdfast.bulk_changes
SET created_at = created_at - :passed::interval, started_at = started_at - :passed::interval,
    running_since = running_since - :passed::interval, ended_at = ended_at - :passed::interval,
    lease_expires_at = lease_expires_at - :passed::interval,
    next_step_at = next_step_at - :passed::interval, expires_at = expires_at - :passed::interval

-- name: error_groups
UPDATE holdfast.error_groups
SET first_seen = first_seen - :passed::interval, last_seen = last_seen - :passed::interval,
    state_since = state_since - :passed::interval

-- name: error_group_jobs
UPDATE holdfast.error_group_jobs
SET ended_at = ended_at - :passed::interval, kept_until = kept_until - :passed::interval

-- name: error_group_places
UPDATE holdfast.error_group_places SET ended_at = ended_at - :passed::interval

-- name: history_counts
-- Ended jobs are counted by the day until which they are kept, and that has changed.
WITH old AS (DELETE FROM holdfast.history_counts)
INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
SELECT (kept_until AT TIME ZONE 'UTC')::date, coalesce(tenant, ''), queue, state, count(*)
FROM holdfast.history
GROUP BY 1, 2, 3, 4

-- name: guard_jobs
ALTER TABLE holdfast.jobs ENABLE TRIGGER USER

-- name: guard_history
ALTER TABLE holdfast.history ENABLE TRIGGER USER

-- name: guard_audit_log
ALTER TABLE holdfast.audit_log ENABLE TRIGGER USER
