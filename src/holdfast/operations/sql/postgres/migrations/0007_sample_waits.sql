-- How long jobs had been due when they were claimed: a row for each step of the scale that a sample
-- has jobs in.
CREATE TABLE holdfast.sample_waits (
    seconds integer NOT NULL, -- these three are those of the table samples
    queue text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    up_to_ms integer NOT NULL, -- longer than the step before, and not longer than this
    jobs bigint NOT NULL,
    PRIMARY KEY (seconds, queue, at, up_to_ms),
    CHECK (seconds IN (10, 60, 900)),
    CHECK (at % seconds = 0)
) WITH (
    -- Small, and its oldest rows are deleted all the time.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);
CREATE INDEX sample_waits_at ON holdfast.sample_waits (seconds, at);

-- Whoever runs jobs may add to them through these functions, and in no other way.

-- Adds to queues that have a row in the table samples for this bucket. Their number is limited.
CREATE FUNCTION holdfast.add_waits(bucket bigint, ended json)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO holdfast.sample_waits AS known (seconds, queue, at, up_to_ms, jobs)
    SELECT 10, more.queue, bucket, wait.key::integer, wait.value::bigint
    FROM json_to_recordset(ended) AS more (queue text, waits json)
    CROSS JOIN LATERAL json_each_text(more.waits) AS wait
    WHERE EXISTS (
        SELECT FROM holdfast.samples
        WHERE seconds = 10 AND samples.queue = more.queue AND at = bucket
    )
    ORDER BY more.queue, wait.key::integer
    ON CONFLICT (seconds, queue, at, up_to_ms) DO UPDATE SET jobs = known.jobs + excluded.jobs;
END
$$;

CREATE FUNCTION holdfast.roll_up_waits(fine integer, coarse integer, until bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    since bigint := coalesce(
        (
            SELECT max(at) + coarse FROM holdfast.sample_waits
            WHERE seconds = coarse AND queue = ''
        ),
        0
    );
BEGIN
    INSERT INTO holdfast.sample_waits (seconds, queue, at, up_to_ms, jobs)
    SELECT coarse, queue, at / coarse * coarse, up_to_ms, sum(jobs)
    FROM holdfast.sample_waits
    WHERE seconds = fine AND at >= since AND at < until / coarse * coarse
    GROUP BY queue, at / coarse * coarse, up_to_ms
    ON CONFLICT (seconds, queue, at, up_to_ms) DO NOTHING;
END
$$;

CREATE FUNCTION holdfast.delete_waits(length integer, before bigint, rows_max integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Only what is no longer kept, whatever is asked for.
    DELETE FROM holdfast.sample_waits
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.sample_waits
        WHERE seconds = length
            AND at < least(before, extract(epoch FROM now())::bigint - length * 720)
        ORDER BY at LIMIT rows_max
    ));
END
$$;

REVOKE EXECUTE ON FUNCTION
    holdfast.add_waits, holdfast.roll_up_waits, holdfast.delete_waits
FROM PUBLIC;
