-- The lanes of the queued jobs: each (queue, priority) with the key of its first job. Steps from
-- lane to lane over the index `jobs_ready`, without reading the jobs between. NULL for `queues`
-- means any queue.
lane AS (
    (
        SELECT queue, priority, run_at, id FROM holdfast.jobs
        WHERE state = 'queued' AND :queues::text[] IS NULL
        ORDER BY queue, priority, run_at, id LIMIT 1
    )
    UNION ALL
    (
        SELECT first.*
        FROM unnest(:queues::text[]) AS wanted (queue)
        CROSS JOIN LATERAL (
            SELECT queue, priority, run_at, id FROM holdfast.jobs
            WHERE state = 'queued' AND jobs.queue = wanted.queue
            ORDER BY queue, priority, run_at, id LIMIT 1
        ) AS first
    )
    UNION ALL
    SELECT next.* FROM lane
    CROSS JOIN LATERAL (
        (
            SELECT queue, priority, run_at, id FROM holdfast.jobs
            WHERE state = 'queued' AND :queues::text[] IS NULL
                AND (jobs.queue, jobs.priority) > (lane.queue, lane.priority)
            ORDER BY queue, priority, run_at, id LIMIT 1
        )
        UNION ALL
        (
            SELECT queue, priority, run_at, id FROM holdfast.jobs
            WHERE state = 'queued' AND :queues::text[] IS NOT NULL
                AND jobs.queue = lane.queue AND jobs.priority > lane.priority
            ORDER BY queue, priority, run_at, id LIMIT 1
        )
    ) AS next
)
