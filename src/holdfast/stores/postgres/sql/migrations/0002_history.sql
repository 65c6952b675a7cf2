-- Workers of version 1 run on this schema until they are replaced: their columns, states and
-- indexes stay. What they end in place, upkeep moves to the history.
ALTER TABLE holdfast.jobs
    ADD COLUMN crashes integer NOT NULL DEFAULT 0,
    ADD COLUMN suspect boolean NOT NULL DEFAULT false,
    ADD COLUMN alone boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT jobs_crashes CHECK (crashes >= 0);

CREATE INDEX jobs_suspects ON holdfast.jobs (priority, run_at, id)
    WHERE suspect AND state = 'queued';
CREATE INDEX jobs_leftovers ON holdfast.jobs (id) WHERE finished_at IS NOT NULL;

CREATE TABLE holdfast.history (
    id uuid NOT NULL,
    fence bigint NOT NULL,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    expires_at timestamptz,
    kept_until timestamptz NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    snoozes integer NOT NULL,
    releases integer NOT NULL,
    crashes integer NOT NULL,
    priority smallint NOT NULL,
    state text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    arguments json NOT NULL,
    tenant text COLLATE "C",
    correlation_id text COLLATE "C",
    tags text[] NOT NULL,
    idempotency_key text COLLATE "C",
    progress json,
    result json,
    error_code text COLLATE "C",
    error_text text,
    requeued_from uuid,
    PRIMARY KEY (id, kept_until),
    CONSTRAINT history_state CHECK (state IN ('succeeded', 'failed', 'dead', 'canceled'))
) PARTITION BY RANGE (kept_until);

CREATE INDEX history_unsuccessful ON holdfast.history (id) WHERE state <> 'succeeded';
CREATE INDEX history_tenant ON holdfast.history (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX history_correlation ON holdfast.history (correlation_id, id)
    WHERE correlation_id IS NOT NULL;

CREATE FUNCTION holdfast.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % has ended as %: it may not change', OLD.id, OLD.state
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER history_never_changes BEFORE UPDATE ON holdfast.history FOR EACH ROW
EXECUTE FUNCTION holdfast.refuse_change();

-- Takes what finds no partition of its day.
CREATE TABLE holdfast.history_rest PARTITION OF holdfast.history DEFAULT;
CREATE INDEX history_rest_kept_until ON holdfast.history_rest (kept_until);

-- How many jobs each day's history holds. Whoever ends jobs adds a row, so that nobody waits for
-- anybody; upkeep folds them into one for each key.
CREATE TABLE holdfast.history_counts (
    kept_day date NOT NULL,
    folded boolean NOT NULL DEFAULT false,
    jobs bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL, -- '' for none
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL
) WITH (
    -- Small, and written anew all the time.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000
);
CREATE UNIQUE INDEX history_counts_folded
    ON holdfast.history_counts (kept_day, tenant, queue, state) WHERE folded;

-- Whoever may work with the jobs may work with their history. The partitions of the days need no
-- rights of their own: nobody names them.
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT
            privilege_type AS privilege,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role,
            CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS option
        FROM pg_class AS jobs
        CROSS JOIN aclexplode(coalesce(jobs.relacl, acldefault('r', jobs.relowner)))
        JOIN pg_class AS history ON history.oid = 'holdfast.history'::regclass
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> history.relowner
    LOOP
        EXECUTE format(
            'GRANT %s ON holdfast.history, holdfast.history_rest, holdfast.history_counts'
            ' TO %s %s',
            allowed.privilege, allowed.role, allowed.option
        );
    END LOOP;
END
$$;

ALTER TABLE holdfast.attempts
    DROP CONSTRAINT attempts_outcome,
    ADD CONSTRAINT attempts_outcome
        CHECK (outcome IN ('failed', 'lost', 'crashed', 'canceled', 'released'));
CREATE INDEX attempts_ended ON holdfast.attempts (ended_at);

CREATE FUNCTION holdfast.history_day_name(day date) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'history_' || to_char(day::timestamp, 'YYYYMMDD');

-- These functions act for the schema's owner: a worker's own role may have no right to make and
-- drop tables. They wait for no lock for long, because whoever wants to write history would wait
-- behind them; what they could not do, they do when they are called again.

-- Says whether the day has its partition now.
CREATE FUNCTION holdfast.add_history_day(day date, strays_max integer, rest_bytes_max bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET lock_timeout = '100ms'
AS $$
DECLARE
    name text := holdfast.history_day_name(day);
    begins timestamptz := day;
    ends timestamptz := day + 1;
    strays bigint;
BEGIN
    -- History is kept for ten years at most.
    IF day < current_date - 60 OR day > current_date + 4000 THEN
        RETURN false;
    END IF;
    LOCK TABLE holdfast.history IN SHARE UPDATE EXCLUSIVE MODE;
    IF to_regclass(format('holdfast.%I', name)) IS NOT NULL THEN
        RETURN true;
    END IF;
    -- All of it is read for a new partition, and nobody can write to it meanwhile.
    IF pg_relation_size('holdfast.history_rest') > rest_bytes_max THEN
        RETURN false;
    END IF;
    -- What ended before its day had a partition moves there, unless that takes too long.
    LOCK TABLE holdfast.history_rest IN ACCESS EXCLUSIVE MODE;
    SELECT count(*) INTO strays FROM (
        SELECT FROM holdfast.history_rest
        WHERE kept_until >= begins AND kept_until < ends
        LIMIT strays_max + 1
    ) AS found;
    IF strays > strays_max THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.history INCLUDING ALL)', name);
    IF strays > 0 THEN
        EXECUTE format(
            'WITH strays AS ('
            '    DELETE FROM holdfast.history_rest WHERE kept_until >= %L AND kept_until < %L'
            '    RETURNING *'
            ') INSERT INTO holdfast.%I SELECT * FROM strays',
            begins, ends, name
        );
    END IF;
    EXECUTE format(
        'ALTER TABLE holdfast.history ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
        name, begins, ends
    );
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

CREATE FUNCTION holdfast.drop_history_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET lock_timeout = '100ms'
AS $$
BEGIN
    IF day >= current_date OR NOT pg_try_advisory_xact_lock(x'686973746f7279'::bigint) THEN
        RETURN false;
    END IF;
    -- A dump may hold its locks for hours: no need to try.
    IF EXISTS (
        SELECT
        FROM pg_locks AS held
        JOIN pg_stat_activity AS holder USING (pid)
        WHERE held.relation = 'holdfast.history'::regclass AND held.granted
            AND holder.datname = current_database()
            AND holder.xact_start < clock_timestamp() - interval '1 second'
    ) THEN
        RETURN false;
    END IF;
    -- Another worker may have dropped it just now.
    IF to_regclass(format('holdfast.%I', holdfast.history_day_name(day))) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE holdfast.%I', holdfast.history_day_name(day));
    -- What of that day found no place in it is still there. One statement: it sees one moment.
    WITH gone AS (
        DELETE FROM holdfast.history_counts WHERE kept_day = day
    )
    INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
    SELECT day, coalesce(tenant, ''), queue, state, count(*)
    FROM holdfast.history_rest
    WHERE kept_until >= day::timestamptz AND kept_until < (day + 1)::timestamptz
    GROUP BY tenant, queue, state;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- The lock keeps two from folding the same key, and from counting anew what is being dropped.
CREATE FUNCTION holdfast.fold_history_counts(rows_max integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    taken integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(x'686973746f7279'::bigint) THEN
        RETURN 0;
    END IF;
    WITH loose AS (
        DELETE FROM holdfast.history_counts
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM holdfast.history_counts WHERE NOT folded LIMIT rows_max
        ))
        RETURNING kept_day, tenant, queue, state, jobs
    ),
    sums AS (
        INSERT INTO holdfast.history_counts AS known (kept_day, tenant, queue, state, jobs, folded)
        SELECT kept_day, tenant, queue, state, sum(jobs), true
        FROM loose
        GROUP BY kept_day, tenant, queue, state
        ON CONFLICT (kept_day, tenant, queue, state) WHERE folded
        DO UPDATE SET jobs = known.jobs + excluded.jobs
    )
    SELECT count(*) INTO taken FROM loose;
    DELETE FROM holdfast.history_counts WHERE folded AND jobs = 0;
    RETURN taken;
END
$$;
