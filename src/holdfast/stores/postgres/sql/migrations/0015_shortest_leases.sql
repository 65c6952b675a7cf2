-- A count for a cap starts where the first lease of a running job ends, as of the last look. Leases
-- taken or renewed after that look end later than it, by at least the length of the queue's shortest
-- lease. With this length recorded here, a count reads only leases taken since just before the look,
-- not all that were taken within the length of a lease.
ALTER TABLE holdfast.queues
    ADD COLUMN shortest_lease_seconds float8,
    ADD COLUMN shortest_since timestamptz, -- no claim under the cap has taken a shorter one since then
    ADD COLUMN shortest_seen_at timestamptz; -- about when a claim last took one of this length

-- Claims made while the queue had no cap didn't record how long their leases are.
CREATE FUNCTION holdfast.forget_shortest_lease() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.shortest_lease_seconds := NULL;
    NEW.shortest_since := NULL;
    NEW.shortest_seen_at := NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER forget_shortest_lease
BEFORE UPDATE OF running_max ON holdfast.queues
FOR EACH ROW WHEN (old.running_max IS NULL OR new.running_max IS NULL)
EXECUTE FUNCTION holdfast.forget_shortest_lease();

-- Returns when the first lease of a running job ends, and when that was looked up. A claim under a
-- cap that this look doesn't see locks its queue after `looked_at`: the function waits for claims
-- that locked one earlier, and returns no row if one takes longer than half a second. Both columns
-- are NULL while few dead entries are in front. The arguments are what the last look returned, and
-- how long ago that was by the caller's own clock.
CREATE FUNCTION holdfast.look_for_first_lease(
    last_lease timestamptz, last_look timestamptz, seconds_ago float8, near_entries bigint
)
RETURNS TABLE (first_lease timestamptz, looked_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant text := current_setting('holdfast.tenant', true);
    before bigint := pg_stat_get_xact_tuples_returned('holdfast.jobs_leases'::regclass);
    since timestamptz := '-infinity';
    claiming text[];
BEGIN
    looked_at := clock_timestamp();
    -- If the clock was set back, the last look says nothing.
    IF looked_at >= last_look + make_interval(secs => seconds_ago - 1) THEN
        since := least(last_lease, last_look - interval '1 second');
    END IF;
    FOR look IN 0..500 LOOP
        claiming := ARRAY(
            SELECT virtualtransaction FROM pg_locks
            WHERE locktype = 'relation' AND relation = 'holdfast.queues'::regclass
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND mode = 'RowShareLock' AND granted
                AND (look = 0 OR virtualtransaction = ANY (claiming))
        );
        EXIT WHEN claiming = '{}' OR clock_timestamp() > looked_at + interval '0.5 seconds';
        PERFORM pg_sleep(0.001);
    END LOOP;
    IF claiming <> '{}' THEN
        RETURN;
    END IF;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', '', true);
    END IF;
    SELECT min(lease_expires_at) INTO first_lease
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at >= since;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
    IF last_look IS NULL AND near_entries >= pg_stat_get_xact_tuples_returned(
        'holdfast.jobs_leases'::regclass
    ) - before THEN
        first_lease := NULL;
        looked_at := NULL;
    END IF;
    RETURN NEXT;
END
$$;

-- As before, but reads only leases that can still be running, given the last look, and records how
-- long the leases of this claim are. Leases begin after this, when their rows are written.
CREATE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], lease_seconds float8, first_lease timestamptz,
    looked_at timestamptz, seconds_ago float8, OUT queues text[], OUT spare bigint[]
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    locked text[];
    caps integer[];
    shortest_seconds float8; -- no lease taken in these queues since the look is shorter
    must_record boolean;
    since timestamptz := '-infinity';
    tenant text := current_setting('holdfast.tenant', true);
BEGIN
    SELECT
        array_agg(name), array_agg(running_max),
        min(
            CASE
                WHEN shortest_since < looked_at - interval '1 minute' THEN shortest_lease_seconds
                -- A claim from before the cap may take that long.
                ELSE -60
            END
        ),
        bool_or(
            shortest_lease_seconds IS NULL
            OR CASE sign(lease_seconds - shortest_lease_seconds)
                WHEN -1 THEN true
                WHEN 0 THEN shortest_seen_at < now() - interval '1 minute'
                ELSE shortest_seen_at < now() - interval '10 minutes'
            END
        )
    INTO locked, caps, shortest_seconds, must_record
    FROM (
        SELECT
            name, running_max, shortest_lease_seconds, shortest_since, shortest_seen_at
        FROM holdfast.queues
        WHERE running_max > 0 AND paused_at IS NULL
            AND (wanted IS NULL OR name = ANY (wanted)) AND name <> ALL (unwanted)
        ORDER BY name
        FOR UPDATE SKIP LOCKED
    ) AS free;
    IF locked IS NULL THEN
        queues := '{}';
        spare := '{}';
        RETURN;
    END IF;
    IF must_record THEN
        UPDATE holdfast.queues
        SET shortest_since = CASE
                WHEN lease_seconds <= shortest_lease_seconds THEN shortest_since ELSE now()
            END,
            shortest_lease_seconds = lease_seconds,
            shortest_seen_at = now()
        WHERE name = ANY (locked) AND (
            shortest_lease_seconds IS NULL OR shortest_lease_seconds >= lease_seconds
            OR shortest_seen_at < now() - interval '10 minutes'
        );
    END IF;
    -- If the clock was set back, the last look says nothing.
    IF clock_timestamp() >= looked_at + make_interval(secs => seconds_ago - 1) THEN
        since := least(first_lease, looked_at + make_interval(secs => shortest_seconds - 1));
    END IF;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', '', true);
    END IF;
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
                AND lease_expires_at >= since
            GROUP BY queue
        ) AS counted ON counted.queue = capped.name
    ) AS found
    WHERE running < running_max;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
END
$$;

-- For workers of the previous version, which don't pass the length of their leases. `since` is what
-- `first_lease` returned.
CREATE OR REPLACE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], since timestamptz, OUT queues text[], OUT spare bigint[]
)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT queues, spare
    FROM holdfast.lock_caps(wanted, unwanted, 0, since, since + interval '1 second', 0)
$$;
-- Only workers two versions back call this one.
DROP FUNCTION holdfast.lock_caps(text[], text[]);

-- Roles that can claim can call what claims need.
REVOKE EXECUTE ON FUNCTION
    holdfast.forget_shortest_lease(),
    holdfast.look_for_first_lease(timestamptz, timestamptz, float8, bigint),
    holdfast.lock_caps(text[], text[], float8, timestamptz, timestamptz, float8)
FROM PUBLIC;
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role,
            CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS option
        FROM pg_class AS jobs
        CROSS JOIN aclexplode(coalesce(jobs.relacl, acldefault('r', jobs.relowner)))
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> jobs.relowner
            AND privilege_type = 'UPDATE'
    LOOP
        EXECUTE format(
            'GRANT EXECUTE ON FUNCTION'
            ' holdfast.look_for_first_lease(timestamptz, timestamptz, float8, bigint),'
            ' holdfast.lock_caps(text[], text[], float8, timestamptz, timestamptz, float8) TO %s %s',
            allowed.role, allowed.option
        );
    END LOOP;
END
$$;
