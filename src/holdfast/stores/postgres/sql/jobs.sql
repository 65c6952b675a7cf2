-- name: cancel
SELECT id, was_running
FROM holdfast.cancel(
    :ids::uuid[], :waiting_only::boolean, :reason::text, :kept_seconds::float8,
    :rule_queues::text[], :rule_states::text[], :rule_seconds::float8[]
)

-- name: retry
SELECT is_due FROM holdfast.retry(:job_id::uuid) AS is_due WHERE is_due

-- name: requeue
SELECT is_requeued
FROM holdfast.requeue(
    :job_id::uuid, :new_id::uuid, :arguments::json, :once::boolean, :longest_seconds::float8
) AS is_requeued
WHERE is_requeued
