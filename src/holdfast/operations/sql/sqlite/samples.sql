-- name: add_to_samples
INSERT INTO samples AS known (
    seconds, queue, at, succeeded, retried, failed, canceled, timed, p50_seconds, p95_seconds
)
SELECT
    10, value ->> 'queue', :bucket, value ->> 'succeeded', value ->> 'retried', value ->> 'failed',
    value ->> 'canceled', value ->> 'timed', value ->> 'p50_seconds', value ->> 'p95_seconds'
FROM json_each(:ended)
WHERE value ->> 'queue' = '' OR (
    SELECT count(*) FROM samples AS others
    WHERE others.seconds = 10 AND others.at = :bucket
        AND others.queue NOT IN ('', value ->> 'queue')
) < :queues_max
ON CONFLICT (seconds, queue, at) DO UPDATE SET
    succeeded = known.succeeded + excluded.succeeded,
    retried = known.retried + excluded.retried,
    failed = known.failed + excluded.failed,
    canceled = known.canceled + excluded.canceled,
    timed = known.timed + excluded.timed,
    p50_seconds = coalesce(
        (known.p50_seconds * known.timed + excluded.p50_seconds * excluded.timed)
        / nullif(known.timed + excluded.timed, 0),
        0
    ),
    p95_seconds = max(known.p95_seconds, excluded.p95_seconds)

-- name: sample_queues
-- Looks at the queues, unless somebody has for this bucket; returns a row if it did. A bounded number
-- of jobs is counted in each lane.
INSERT INTO samples (seconds, queue, at, ready, scheduled, parked, running, oldest_seconds)
WITH sampled (is_there) AS MATERIALIZED (
    SELECT EXISTS (
        SELECT 1 FROM samples
        WHERE seconds = 10 AND queue = '' AND at = :bucket AND ready IS NOT NULL
    )
),
lane AS MATERIALIZED (
    SELECT queue, priority FROM lanes LIMIT :lanes_max
),
share (jobs) AS MATERIALIZED (
    SELECT min(10000, :jobs_max / max(count(*), 1)) FROM lane
),
counted AS (
    SELECT
        lane.queue,
        (
            SELECT count(*) FROM (
                SELECT 1 FROM jobs INDEXED BY jobs_due
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at <= CAST(:moment * 1e6 AS INTEGER)
                LIMIT (SELECT jobs FROM share)
            )
        ) AS ready,
        (
            SELECT max(run_at, 0) FROM jobs INDEXED BY jobs_due
            WHERE state = 'queued' AND jobs.queue = lane.queue
                AND jobs.priority = lane.priority AND run_at <= CAST(:moment * 1e6 AS INTEGER)
            ORDER BY run_at LIMIT 1
        ) AS oldest,
        (
            SELECT count(*) FROM (
                SELECT 1 FROM jobs INDEXED BY jobs_due
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at > CAST(:moment * 1e6 AS INTEGER)
                    AND run_at < 9223372036854775807
                LIMIT (SELECT jobs FROM share)
            )
        ) AS scheduled,
        (
            SELECT count(*) FROM (
                SELECT 1 FROM jobs INDEXED BY jobs_due
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at = 9223372036854775807
                LIMIT (SELECT jobs FROM share)
            )
        ) AS parked,
        0 AS running
    FROM lane
    UNION ALL
    SELECT queue, 0, NULL, 0, 0, count(*) FROM jobs INDEXED BY jobs_leased
    WHERE state = 'running' GROUP BY queue
),
of_queue AS MATERIALIZED (
    SELECT
        queue, sum(ready) AS ready, sum(scheduled) AS scheduled, sum(parked) AS parked,
        sum(running) AS running, coalesce(:moment - min(oldest) / 1e6, 0.0) AS oldest
    FROM counted GROUP BY queue
)
SELECT 10, queue, :bucket, ready, scheduled, parked, running, oldest
FROM (SELECT *, row_number() OVER (ORDER BY queue) AS place FROM of_queue)
WHERE place <= :queues_max AND NOT (SELECT is_there FROM sampled)
UNION ALL
SELECT
    10, '', :bucket, coalesce(sum(ready), 0), coalesce(sum(scheduled), 0),
    coalesce(sum(parked), 0), coalesce(sum(running), 0), coalesce(max(oldest), 0.0)
FROM of_queue
HAVING NOT (SELECT is_there FROM sampled)
ON CONFLICT (seconds, queue, at) DO UPDATE SET
    ready = excluded.ready, scheduled = excluded.scheduled, parked = excluded.parked,
    running = excluded.running, oldest_seconds = excluded.oldest_seconds
RETURNING true

-- name: roll_up_samples
INSERT INTO samples (
    seconds, queue, at, ready, scheduled, parked, running, oldest_seconds, succeeded, retried,
    failed, canceled, timed, p50_seconds, p95_seconds
)
SELECT
    :coarse, queue, at / :coarse * :coarse, max(ready), max(scheduled), max(parked), max(running),
    max(oldest_seconds), sum(succeeded), sum(retried), sum(failed), sum(canceled), sum(timed),
    coalesce(sum(p50_seconds * timed) / nullif(sum(timed), 0), 0), max(p95_seconds)
FROM samples
WHERE seconds = :fine AND at < :until / :coarse * :coarse AND at >= coalesce(
    (SELECT max(at) + :coarse FROM samples WHERE seconds = :coarse AND queue = ''), 0
)
GROUP BY queue, at / :coarse * :coarse
ON CONFLICT (seconds, queue, at) DO NOTHING

-- name: delete_samples
DELETE FROM samples WHERE (seconds, queue, at) IN (
    SELECT seconds, queue, at FROM samples
    WHERE seconds = :length AND at < :before ORDER BY at LIMIT :rows_max
)

-- name: add_waits
-- Only to queues that have a row for this bucket.
INSERT INTO sample_waits AS known (seconds, queue, at, up_to_ms, jobs)
SELECT 10, ended.value ->> 'queue', :bucket, CAST(wait.key AS INTEGER), wait.value
FROM json_each(:ended) AS ended, json_each(ended.value, '$.waits') AS wait
WHERE EXISTS (
    SELECT 1 FROM samples
    WHERE seconds = 10 AND queue = ended.value ->> 'queue' AND at = :bucket
)
ON CONFLICT (seconds, queue, at, up_to_ms) DO UPDATE SET jobs = known.jobs + excluded.jobs

-- name: roll_up_waits
INSERT INTO sample_waits (seconds, queue, at, up_to_ms, jobs)
SELECT :coarse, queue, at / :coarse * :coarse, up_to_ms, sum(jobs)
FROM sample_waits
WHERE seconds = :fine AND at < :until / :coarse * :coarse AND at >= coalesce(
    (SELECT max(at) + :coarse FROM sample_waits WHERE seconds = :coarse AND queue = ''), 0
)
GROUP BY queue, at / :coarse * :coarse, up_to_ms
ON CONFLICT (seconds, queue, at, up_to_ms) DO NOTHING

-- name: delete_waits
DELETE FROM sample_waits WHERE (seconds, queue, at, up_to_ms) IN (
    SELECT seconds, queue, at, up_to_ms FROM sample_waits
    WHERE seconds = :length AND at < :before ORDER BY at LIMIT :rows_max
)
