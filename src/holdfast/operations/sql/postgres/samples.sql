-- name: add_to_samples
SELECT holdfast.add_to_samples(:bucket::bigint, :ended::text::json, :queues_max::integer)

-- name: sample_queues
SELECT holdfast.sample_queues(
    :bucket::bigint, to_timestamp(:moment::float8), :queues_max::integer, :lanes_max::integer,
    :jobs_max::integer
)

-- name: roll_up_samples
SELECT holdfast.roll_up_samples(:fine::integer, :coarse::integer, :until::bigint)

-- name: delete_samples
SELECT holdfast.delete_samples(:length::integer, :before::bigint, :rows_max::integer)

-- name: add_waits
SELECT holdfast.add_waits(:bucket::bigint, :ended::text::json)

-- name: roll_up_waits
SELECT holdfast.roll_up_waits(:fine::integer, :coarse::integer, :until::bigint)

-- name: delete_waits
SELECT holdfast.delete_waits(:length::integer, :before::bigint, :rows_max::integer)
