-- Where the walk of each lane begins: at a position or, if that is later, at the time of the look
-- that passed it.
(
    SELECT
        queue, priority, least(run_at, looked_at) AS run_at,
        CASE
            WHEN run_at IS NULL OR run_at > looked_at THEN '00000000-0000-0000-0000-000000000000'
            ELSE id
        END AS id
    FROM (
        SELECT
            queue, priority, run_at, id, now() - make_interval(secs => seconds_ago) AS looked_at
        FROM unnest(
            :lane_queues::text[], :lane_priorities::smallint[], :lane_run_at::timestamptz[],
            :lane_ids::uuid[], :looked_seconds_ago::float8[]
        ) AS known (queue, priority, run_at, id, seconds_ago)
    ) AS known
)
