-- name: delete_old
SELECT holdfast.delete_old_webhooks(:kept_seconds, :dead_kept_seconds, :rows_max)
