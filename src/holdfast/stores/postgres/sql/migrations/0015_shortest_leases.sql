-- A count for a cap begins where the first lease of a running job ends, as was last looked up.
-- Leases that were taken since end later than that look, by the length of the shortest lease in the
-- queue. With that length here, a count reads the leases of the last moment, and not all that ended
-- within the length of a lease.
ALTER TABLE holdfast.queues
    ADD COLUMN shortest_lease_seconds float8,
    ADD COLUMN shortest_since timestamptz, -- no claim under the cap took a shorter one since
    ADD COLUMN shortest_seen_at timestamptz; -- roughly when one last took one of this length

-- Claims from a time without the cap have told nobody how long their leases are.
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
BEFORE INSERT OR UPDATE OF running_max ON holdfast.queues
FOR EACH ROW EXECUTE FUNCTION holdfast.forget_shortest_lease();

-- When the first lease of a running job ends, and when that was looked up. Whatever claims under a
-- cap are not seen here lock their queue after `looked_at`: those that had locked it before are
-- waited for. Both are NULL while little is dead in front. There is no row if such a claim takes
-- long. `since` is where the last look began.
CREATE FUNCTION holdfast.look_for_first_lease(since timestamptz, near_entries bigint)
RETURNS TABLE (first_lease timestamptz, looked_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant text := current_setting('holdfast.tenant', true);
    before bigint := pg_stat_get_xact_tuples_returned('holdfast.jobs_leases'::regclass);
    claiming text[];
BEGIN
    looked_at := clock_timestamp();
    FOR look IN 0..50 LOOP
        claiming := ARRAY(
            SELECT virtualtransaction FROM pg_locks
            WHERE locktype = 'relation' AND relation = 'holdfast.queues'::regclass
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND mode = 'RowShareLock' AND granted
                AND (look = 0 OR virtualtransaction = ANY (claiming))
        );
        EXIT WHEN claiming = '{}';
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
    WHERE state = 'running' AND lease_expires_at >= coalesce(since, '-infinity');
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
    IF since IS NULL AND near_entries >= pg_stat_get_xact_tuples_returned(
        'holdfast.jobs_leases'::regclass
    ) - before THEN
        first_lease := NULL;
        looked_at := NULL;
    END IF;
    RETURN NEXT;
END
$$;

-- As before, but counts only the leases that can end after what `look_for_first_lease` said, and
-- notes how long the leases of this claim are. A claim that began more than two seconds ago gets
-- no capped jobs: its leases could end before those that are counted.
CREATE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], lease_seconds float8, first_lease timestamptz,
    looked_at timestamptz, OUT queues text[], OUT spare bigint[]
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    locked text[];
    caps integer[];
    others_seconds float8; -- every lease in these queues since the look is at least that long
    is_news boolean;
    since timestamptz;
    tenant text := current_setting('holdfast.tenant', true);
BEGIN
    SELECT
        array_agg(name), array_agg(running_max),
        min(
            CASE
                WHEN shortest_since < looked_at - interval '1 minute' THEN shortest_lease_seconds
                ELSE 0
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
    INTO locked, caps, others_seconds, is_news
    FROM (
        SELECT
            name, running_max, shortest_lease_seconds, shortest_since, shortest_seen_at
        FROM holdfast.queues
        WHERE running_max > 0 AND paused_at IS NULL
            AND (wanted IS NULL OR name = ANY (wanted)) AND name <> ALL (unwanted)
        ORDER BY name
        FOR UPDATE SKIP LOCKED
    ) AS free;
    IF locked IS NULL OR clock_timestamp() > now() + interval '2 seconds' THEN
        queues := '{}';
        spare := '{}';
        RETURN;
    END IF;
    IF is_news THEN
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
    -- If the clock was set back, nothing is known.
    IF looked_at <= now() THEN
        since := least(
            first_lease, looked_at + make_interval(secs => others_seconds - 2)
        );
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
                AND lease_expires_at >= coalesce(since, '-infinity')
            GROUP BY queue
        ) AS counted ON counted.queue = capped.name
    ) AS found
    WHERE running < running_max;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
END
$$;

-- For workers of the version before, which don't tell how long their leases are. `since` is what
-- `first_lease` returned.
CREATE OR REPLACE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], since timestamptz, OUT queues text[], OUT spare bigint[]
)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT queues, spare
    FROM holdfast.lock_caps(wanted, unwanted, 0, since, since + interval '2 seconds')
$$;
DROP FUNCTION holdfast.lock_caps(text[], text[]);

-- Whoever may claim may call what claims need.
REVOKE EXECUTE ON FUNCTION
    holdfast.forget_shortest_lease(),
    holdfast.look_for_first_lease(timestamptz, bigint),
    holdfast.lock_caps(text[], text[], float8, timestamptz, timestamptz)
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
            ' holdfast.look_for_first_lease(timestamptz, bigint),'
            ' holdfast.lock_caps(text[], text[], float8, timestamptz, timestamptz) TO %s %s',
            allowed.role, allowed.option
        );
    END LOOP;
END
$$;
