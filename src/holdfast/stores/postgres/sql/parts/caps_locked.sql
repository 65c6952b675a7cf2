-- The capped queues in which jobs can start, and how many in each.
caps AS MATERIALIZED (
    SELECT queues, spare
    FROM holdfast.lock_caps(
        :queues::text[], :except_queues::text[], :shortest_lease_seconds::float8,
        :first_lease::timestamptz, :looked_at::timestamptz, :looked_seconds_before::float8
    )
)
