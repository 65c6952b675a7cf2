-- name: requeue
SELECT holdfast.requeue_dead_letter(:dead_letter_id)

-- name: disable
SELECT holdfast.disable_webhook_subscription(:id, :because)

-- name: cancel_saga
SELECT holdfast.cancel_webhook_saga(:id)
