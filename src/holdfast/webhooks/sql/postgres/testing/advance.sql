-- name: sagas
UPDATE holdfast.webhook_sagas SET next_attempt_at = next_attempt_at - :passed::interval
WHERE status = 'Pending'

-- name: attempts
UPDATE holdfast.webhook_attempts SET check_at = check_at - :passed::interval
WHERE status = 'Pending'
