-- Probes go to jobs that were started least often; among equals, in turn to the newest and to one
-- drawn by lot. In the order of the queue, many jobs that fail by themselves would keep all others
-- from a probe.
--
-- Workers of version 8 go on with `breakers.probed_id` as they know it; for those of this version
-- it is the last parked job that a search for a probe passed over.
ALTER TABLE holdfast.jobs
    ADD COLUMN probes integer NOT NULL DEFAULT 0; -- how often it was sent ahead
ALTER TABLE holdfast.breakers
    ADD COLUMN probes integer NOT NULL DEFAULT 0, -- since it opened
    ADD COLUMN worked_at timestamptz; -- the last success that a worker told of

-- The end of an id that Holdfast makes is random.
CREATE FUNCTION holdfast.lot(id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN right(id::text, 8);

CREATE INDEX jobs_parked ON holdfast.jobs (breaker, fence, holdfast.lot(id), id)
    WHERE state = 'queued' AND run_at = 'infinity' AND breaker IS NOT NULL;

-- Counts failures against one breaker, in order, and says of each whether it found that open. Who
-- strikes the same breaker waits, so that each failure knows those before it; but only until
-- `wait_seconds` after the statement began, because others wait for the answer.
--
-- So many failures in a row open it. If jobs have succeeded since the first failure in the window,
-- it takes `doubt_factor` times as many. The parameters with defaults are unknown to version 8.
DROP FUNCTION holdfast.strike(text, integer[], float8[], float8[], text[], float8);
CREATE FUNCTION holdfast.strike(
    struck text, failures_max integer[], windows float8[], probes float8[], becauses text[],
    wait_seconds float8, failed_seconds_ago float8[] DEFAULT '{}',
    worked_seconds_ago float8 DEFAULT NULL, doubt_factor integer DEFAULT 1
)
RETURNS boolean[]
LANGUAGE plpgsql
AS $$
DECLARE
    count integer := cardinality(becauses);
    left_seconds float8 := wait_seconds
        - extract(epoch FROM clock_timestamp() - statement_timestamp());
    known holdfast.breakers;
    is_open boolean;
    moment timestamptz;
    worked timestamptz;
    in_a_row integer;
    because text;
    answers boolean[] := '{}';
BEGIN
    PERFORM set_config('lock_timeout', greatest(left_seconds * 1000, 1)::integer::text, true);
    BEGIN
        INSERT INTO holdfast.breakers AS breaker (key, window_seconds, probe_seconds)
        VALUES (struck, windows[count], probes[count])
        ON CONFLICT (key) DO UPDATE
        SET window_seconds = excluded.window_seconds, probe_seconds = excluded.probe_seconds
        RETURNING breaker.* INTO known;
    EXCEPTION WHEN lock_not_available THEN
        -- Somebody stands still with the row. These are not counted, but may find it open.
        SELECT opened_at IS NOT NULL INTO is_open FROM holdfast.breakers WHERE key = struck;
        RETURN array_fill(coalesce(is_open, false), ARRAY[count]);
    END;
    is_open := known.opened_at IS NOT NULL;
    -- The time when it had the lock; now() is the time when it began to wait.
    moment := clock_timestamp();
    worked := greatest(known.worked_at, moment - make_interval(secs => worked_seconds_ago));
    FOR place IN 1..count LOOP
        answers := answers || is_open;
        CONTINUE WHEN is_open;
        known.failures := ARRAY(
            SELECT failed_at
            FROM unnest(
                known.failures
                || (moment - make_interval(secs => coalesce(failed_seconds_ago[place], 0)))
            ) AS failed_at
            WHERE failed_at > moment - make_interval(secs => windows[place])
            ORDER BY failed_at
        );
        in_a_row := count(*) FROM unnest(known.failures) AS failed_at
            WHERE failed_at <= worked IS NOT TRUE;
        is_open := in_a_row >= failures_max[place]
            * CASE WHEN in_a_row < cardinality(known.failures) THEN doubt_factor ELSE 1 END;
        because := becauses[place];
        known.failures := known.failures[
            cardinality(known.failures) - failures_max[place] * doubt_factor + 1 :
        ];
    END LOOP;
    IF NOT answers[1] THEN
        UPDATE holdfast.breakers
        SET failures = known.failures,
            worked_at = worked,
            changed_at = now(),
            opened_at = CASE WHEN is_open THEN moment END,
            opened_by = CASE WHEN NOT is_open THEN opened_by END,
            opened_because = CASE WHEN is_open THEN because ELSE opened_because END,
            next_probe_at = CASE
                WHEN is_open THEN moment + make_interval(secs => probe_seconds)
            END,
            letting_go = letting_go AND NOT is_open,
            times_opened = times_opened + is_open::integer
        WHERE key = struck;
    END IF;
    RETURN answers;
END
$$;
