-- How queues were doing: a row for each queue that had jobs, and one for all queues together.
CREATE TABLE holdfast.samples (
    seconds integer NOT NULL, -- how long the span of this row is
    queue text COLLATE "C" NOT NULL, -- '' for all queues together
    at bigint NOT NULL, -- when the span begins, in seconds since 1970
    ready bigint, -- NULL until the queues have been looked at
    scheduled bigint NOT NULL DEFAULT 0,
    parked bigint NOT NULL DEFAULT 0,
    running bigint NOT NULL DEFAULT 0,
    oldest_seconds double precision NOT NULL DEFAULT 0,
    succeeded bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    canceled bigint NOT NULL DEFAULT 0,
    timed bigint NOT NULL DEFAULT 0, -- attempts that the percentiles stand for
    p50_seconds double precision NOT NULL DEFAULT 0,
    p95_seconds double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (seconds, queue, at),
    CHECK (seconds IN (10, 60, 900)),
    CHECK (at % seconds = 0)
) WITH (
    -- Small, and its oldest rows are deleted all the time.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);
CREATE INDEX samples_at ON holdfast.samples (seconds, at);

-- Whoever runs jobs may add to the samples through these functions, and in no other way.

CREATE FUNCTION holdfast.add_to_samples(bucket bigint, ended json, queues_max integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO holdfast.samples AS known (
        seconds, queue, at, succeeded, retried, failed, canceled, timed, p50_seconds, p95_seconds
    )
    SELECT
        10, queue, bucket, succeeded, retried, failed, canceled, timed, p50_seconds, p95_seconds
    FROM json_to_recordset(ended) AS more (
        queue text, succeeded bigint, retried bigint, failed bigint, canceled bigint,
        timed bigint, p50_seconds double precision, p95_seconds double precision
    )
    WHERE queue = '' OR (
        SELECT count(*) FROM holdfast.samples AS others
        WHERE others.seconds = 10 AND others.at = bucket AND others.queue NOT IN ('', more.queue)
    ) < queues_max
    ORDER BY queue
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
        p95_seconds = greatest(known.p95_seconds, excluded.p95_seconds);
END
$$;

-- Looks at the queues, unless somebody has for this bucket, and says whether it did. It steps from
-- lane to lane over the index `jobs_ready`, and counts a bounded number of jobs in each.
CREATE FUNCTION holdfast.sample_queues(
    bucket bigint, moment timestamptz, queues_max integer, lanes_max integer, jobs_max integer
)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(x'73616d706c6573'::bigint) OR EXISTS (
        SELECT FROM holdfast.samples
        WHERE seconds = 10 AND queue = '' AND at = bucket AND ready IS NOT NULL
    ) THEN
        RETURN false;
    END IF;
    WITH RECURSIVE every_lane AS (
        (
            SELECT queue, priority FROM holdfast.jobs
            WHERE state = 'queued' ORDER BY queue, priority LIMIT 1
        )
        UNION ALL
        SELECT next.queue, next.priority FROM every_lane
        CROSS JOIN LATERAL (
            SELECT queue, priority FROM holdfast.jobs
            WHERE state = 'queued'
                AND (jobs.queue, jobs.priority) > (every_lane.queue, every_lane.priority)
            ORDER BY queue, priority LIMIT 1
        ) AS next
    ),
    lane AS MATERIALIZED (
        SELECT queue, priority FROM every_lane LIMIT lanes_max
    ),
    share AS MATERIALIZED (
        SELECT least(10000, jobs_max / greatest(count(*), 1)) AS jobs FROM lane
    ),
    counted AS (
        SELECT lane.queue, ready, oldest, scheduled, parked, 0 AS running
        FROM lane
        CROSS JOIN LATERAL (
            SELECT count(*) AS ready, min(greatest(run_at, 'epoch')) AS oldest FROM (
                SELECT run_at FROM holdfast.jobs
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at <= moment
                ORDER BY run_at LIMIT (SELECT jobs FROM share)
            ) AS looked_at
        ) AS due
        CROSS JOIN LATERAL (
            SELECT count(*) AS scheduled FROM (
                SELECT FROM holdfast.jobs
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at > moment AND run_at < 'infinity'
                LIMIT (SELECT jobs FROM share)
            ) AS looked_at
        ) AS later
        CROSS JOIN LATERAL (
            SELECT count(*) AS parked FROM (
                SELECT FROM holdfast.jobs
                WHERE state = 'queued' AND jobs.queue = lane.queue
                    AND jobs.priority = lane.priority AND run_at = 'infinity'
                LIMIT (SELECT jobs FROM share)
            ) AS looked_at
        ) AS never
        UNION ALL
        SELECT queue, 0, NULL, 0, 0, count(*) FROM holdfast.jobs
        WHERE state = 'running' GROUP BY queue
    ),
    of_queue AS (
        SELECT
            queue, sum(ready) AS ready, sum(scheduled) AS scheduled, sum(parked) AS parked,
            sum(running) AS running,
            coalesce(extract(epoch FROM moment - min(oldest))::double precision, 0) AS oldest
        FROM counted GROUP BY queue
    )
    INSERT INTO holdfast.samples (
        seconds, queue, at, ready, scheduled, parked, running, oldest_seconds
    )
    SELECT 10, queue, bucket, ready, scheduled, parked, running, oldest
    FROM (SELECT *, row_number() OVER (ORDER BY queue) AS place FROM of_queue) AS placed
    WHERE place <= queues_max
    UNION ALL
    SELECT
        10, '', bucket, coalesce(sum(ready), 0), coalesce(sum(scheduled), 0),
        coalesce(sum(parked), 0), coalesce(sum(running), 0), coalesce(max(oldest), 0)
    FROM of_queue
    ON CONFLICT (seconds, queue, at) DO UPDATE SET
        ready = excluded.ready, scheduled = excluded.scheduled, parked = excluded.parked,
        running = excluded.running, oldest_seconds = excluded.oldest_seconds;
    RETURN true;
END
$$;

-- Rolls the buckets of one length that ended before `until` up into those of another: depths, ages
-- and the slow end by their maximum, counts by their sum, the median weighted.
CREATE FUNCTION holdfast.roll_up_samples(fine integer, coarse integer, until bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    since bigint := coalesce(
        (
            SELECT max(at) + coarse FROM holdfast.samples WHERE seconds = coarse AND queue = ''
        ),
        0
    );
BEGIN
    IF since < until THEN
        INSERT INTO holdfast.samples (
            seconds, queue, at, ready, scheduled, parked, running, oldest_seconds, succeeded,
            retried, failed, canceled, timed, p50_seconds, p95_seconds
        )
        SELECT
            coarse, queue, at / coarse * coarse, max(ready), max(scheduled), max(parked),
            max(running), max(oldest_seconds), sum(succeeded), sum(retried), sum(failed),
            sum(canceled), sum(timed),
            coalesce(sum(p50_seconds * timed) / nullif(sum(timed), 0), 0), max(p95_seconds)
        FROM holdfast.samples
        WHERE seconds = fine AND at >= since AND at < until / coarse * coarse
        GROUP BY queue, at / coarse * coarse
        ON CONFLICT (seconds, queue, at) DO NOTHING;
    END IF;
END
$$;

CREATE FUNCTION holdfast.delete_samples(length integer, before bigint, rows_max integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Only what is no longer kept, whatever is asked for.
    DELETE FROM holdfast.samples
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.samples
        WHERE seconds = length
            AND at < least(before, extract(epoch FROM now())::bigint - length * 720)
        ORDER BY at LIMIT rows_max
    ));
END
$$;

REVOKE EXECUTE ON FUNCTION
    holdfast.add_to_samples, holdfast.sample_queues, holdfast.roll_up_samples,
    holdfast.delete_samples
FROM PUBLIC;
