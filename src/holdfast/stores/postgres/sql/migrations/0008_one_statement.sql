-- A client that stands still between two statements of a transaction keeps its locks. What others
-- wait for is therefore done by one statement, which the server commits by itself.

-- Locks the caps of these queues (NULL: of all), and says how many more jobs each may run. A queue
-- that another claim has locked, or that is full, is left out.
CREATE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], OUT queues text[], OUT spare bigint[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    locked text[];
    caps integer[];
BEGIN
    SELECT array_agg(name), array_agg(running_max)
    INTO locked, caps
    FROM (
        SELECT name, running_max
        FROM holdfast.queues
        WHERE running_max > 0 AND paused_at IS NULL
            AND (wanted IS NULL OR name = ANY (wanted)) AND name <> ALL (unwanted)
        ORDER BY name
        FOR UPDATE SKIP LOCKED
    ) AS free;
    -- A statement of its own: it sees what others claimed before they gave up these locks.
    SELECT coalesce(array_agg(name), '{}'), coalesce(array_agg(running_max - running), '{}')
    INTO queues, spare
    FROM (
        SELECT capped.name, capped.running_max, coalesce(counted.jobs, 0) AS running
        FROM unnest(locked, caps) AS capped (name, running_max)
        LEFT JOIN (
            SELECT queue, count(*) AS jobs
            FROM holdfast.jobs
            WHERE state = 'running' AND queue = ANY (locked)
            GROUP BY queue
        ) AS counted ON counted.queue = capped.name
    ) AS found
    WHERE running < running_max;
END
$$;

-- Counts failures against one breaker, in order, and says of each whether it found that open. Who
-- strikes the same breaker waits, so that each failure knows those before it; but only until
-- `wait_seconds` after the statement began, because others wait for the answer.
CREATE FUNCTION holdfast.strike(
    struck text, failures_max integer[], windows float8[], probes float8[], becauses text[],
    wait_seconds float8
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
    FOR place IN 1..count LOOP
        answers := answers || is_open;
        CONTINUE WHEN is_open;
        known.failures := ARRAY(
            SELECT failed_at
            FROM unnest(known.failures) AS failed_at
            WHERE failed_at > moment - make_interval(secs => windows[place])
        ) || moment;
        is_open := cardinality(known.failures) >= failures_max[place];
        because := becauses[place];
        known.failures := known.failures[cardinality(known.failures) - failures_max[place] + 1 :];
    END LOOP;
    IF NOT answers[1] THEN
        UPDATE holdfast.breakers
        SET failures = known.failures,
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
