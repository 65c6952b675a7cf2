-- Where the claims of other workers begin, for a worker that starts while vacuum can't clear what
-- the claims leave behind. A hint: whoever uses it looks in front of it, too.
CREATE TABLE holdfast.lanes (
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    run_at timestamptz NOT NULL, -- nothing before this waited
    noted_at timestamptz NOT NULL,
    PRIMARY KEY (queue, priority)
);

-- Looks at every lane from its front: since when its first job waits, and the first few that a
-- claim could take and that have been due for a moment. `entries` is how many entries of the
-- claim's index that took, dead ones included, as the server counts them.
CREATE FUNCTION holdfast.scan_lanes(
    names text[], wanted text[], unwanted text[], of_tenant text, moment_seconds float8,
    late_max integer,
    OUT queues text[], OUT priorities smallint[], OUT waits_since timestamptz[],
    OUT late_queues text[], OUT late_priorities smallint[], OUT late_run_at timestamptz[],
    OUT late_ids uuid[], OUT entries bigint
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    before bigint := pg_stat_get_xact_tuples_returned('holdfast.jobs_ready'::regclass);
BEGIN
    WITH RECURSIVE lane AS (
        (
            SELECT queue, priority, run_at, id FROM holdfast.jobs
            WHERE state = 'queued' AND wanted IS NULL
            ORDER BY queue, priority, run_at, id LIMIT 1
        )
        UNION ALL
        (
            SELECT first.*
            FROM unnest(wanted) AS named (queue)
            CROSS JOIN LATERAL (
                SELECT queue, priority, run_at, id FROM holdfast.jobs
                WHERE state = 'queued' AND jobs.queue = named.queue
                ORDER BY queue, priority, run_at, id LIMIT 1
            ) AS first
        )
        UNION ALL
        SELECT next.* FROM lane
        CROSS JOIN LATERAL (
            (
                SELECT queue, priority, run_at, id FROM holdfast.jobs
                WHERE state = 'queued' AND wanted IS NULL
                    AND (jobs.queue, jobs.priority) > (lane.queue, lane.priority)
                ORDER BY queue, priority, run_at, id LIMIT 1
            )
            UNION ALL
            (
                SELECT queue, priority, run_at, id FROM holdfast.jobs
                WHERE state = 'queued' AND wanted IS NOT NULL
                    AND jobs.queue = lane.queue AND jobs.priority > lane.priority
                ORDER BY queue, priority, run_at, id LIMIT 1
            )
        ) AS next
    ),
    served AS MATERIALIZED (
        SELECT * FROM lane WHERE queue <> ALL (unwanted)
    ),
    late AS MATERIALIZED (
        SELECT served.queue, served.priority, job.run_at, job.id FROM served
        CROSS JOIN LATERAL (
            SELECT run_at, id FROM holdfast.jobs
            WHERE state = 'queued' AND jobs.queue = served.queue
                AND jobs.priority = served.priority
                AND (jobs.run_at, jobs.id) >= (served.run_at, served.id)
                AND run_at <= now() - make_interval(secs => moment_seconds)
                AND name = ANY (names) AND NOT suspect
                AND (of_tenant IS NULL OR coalesce(tenant, 'default') = of_tenant)
                AND (
                    breaker IS NULL
                    OR (SELECT opened_at FROM holdfast.breakers WHERE key = jobs.breaker) IS NULL
                )
            ORDER BY run_at, id LIMIT late_max
        ) AS job
    )
    SELECT
        seen.queues, seen.priorities, seen.waits_since,
        found.queues, found.priorities, found.run_ats, found.ids
    INTO
        queues, priorities, waits_since, late_queues, late_priorities, late_run_at, late_ids
    FROM (
        SELECT
            coalesce(array_agg(queue), '{}') AS queues,
            coalesce(array_agg(priority), '{}') AS priorities,
            coalesce(array_agg(run_at), '{}') AS waits_since
        FROM served
    ) AS seen
    CROSS JOIN (
        SELECT
            coalesce(array_agg(queue ORDER BY run_at, id), '{}') AS queues,
            coalesce(array_agg(priority ORDER BY run_at, id), '{}') AS priorities,
            coalesce(array_agg(run_at ORDER BY run_at, id), '{}') AS run_ats,
            coalesce(array_agg(id ORDER BY run_at, id), '{}') AS ids
        FROM late
    ) AS found;
    entries := pg_stat_get_xact_tuples_returned('holdfast.jobs_ready'::regclass) - before;
END
$$;

-- Notes where the claims begin in these lanes, unless somebody did in the last seconds: a row that
-- is written often leaves behind what it is there to avoid. NULL stands for now.
CREATE FUNCTION holdfast.note_lanes(
    queues text[], priorities smallint[], run_ats timestamptz[], every_seconds float8,
    kept_seconds float8
)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO holdfast.lanes AS known (queue, priority, run_at, noted_at)
    SELECT queue, priority, coalesce(least(run_at, now()), now()), now()
    FROM unnest(queues, priorities, run_ats) AS seen (queue, priority, run_at)
    WHERE NOT EXISTS (
        SELECT FROM holdfast.lanes AS fresh
        WHERE fresh.queue = seen.queue AND fresh.priority = seen.priority
            AND fresh.noted_at > now() - make_interval(secs => every_seconds)
    )
    ORDER BY queue, priority
    ON CONFLICT (queue, priority) DO UPDATE
    SET run_at = excluded.run_at, noted_at = excluded.noted_at;
    DELETE FROM holdfast.lanes WHERE noted_at < now() - make_interval(secs => kept_seconds);
END
$$;

-- No lease of a running job ends before this: whoever counts them can leave out what is dead in
-- front. NULL as long as little is. `since` is what the last call returned.
CREATE FUNCTION holdfast.first_lease(since timestamptz, near_entries bigint)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant text := current_setting('holdfast.tenant', true);
    before bigint := pg_stat_get_xact_tuples_returned('holdfast.jobs_leases'::regclass);
    first timestamptz;
BEGIN
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', '', true);
    END IF;
    SELECT min(lease_expires_at) INTO first
    FROM holdfast.jobs
    WHERE state = 'running' AND lease_expires_at >= coalesce(since, '-infinity');
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
    IF since IS NULL AND near_entries >= pg_stat_get_xact_tuples_returned(
        'holdfast.jobs_leases'::regclass
    ) - before THEN
        RETURN NULL;
    END IF;
    -- A claim that is under way now ends its leases later than that.
    RETURN least(first, now() - interval '5 seconds');
END
$$;

-- As before, but counts only leases that end after `since`.
CREATE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], since timestamptz, OUT queues text[], OUT spare bigint[]
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    locked text[];
    caps integer[];
    tenant text := current_setting('holdfast.tenant', true);
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
    IF locked IS NULL THEN
        queues := '{}';
        spare := '{}';
        RETURN;
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

-- Whoever may claim may call and see what claims need.
REVOKE EXECUTE ON FUNCTION
    holdfast.scan_lanes(text[], text[], text[], text, float8, integer),
    holdfast.note_lanes(text[], smallint[], timestamptz[], float8, float8),
    holdfast.first_lease(timestamptz, bigint),
    holdfast.lock_caps(text[], text[], timestamptz)
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
            ' holdfast.scan_lanes(text[], text[], text[], text, float8, integer),'
            ' holdfast.note_lanes(text[], smallint[], timestamptz[], float8, float8),'
            ' holdfast.first_lease(timestamptz, bigint),'
            ' holdfast.lock_caps(text[], text[], timestamptz) TO %1$s %2$s;'
            ' GRANT SELECT ON holdfast.lanes TO %1$s %2$s',
            allowed.role, allowed.option
        );
    END LOOP;
END
$$;
