-- From now on, functions that delete rows or end jobs run as the schema's owner: no role needs the
-- DELETE privilege. Workers of version 10 still send these statements themselves, with their own
-- privileges.

-- How long to keep a job that ended, by the first matching rule.
CREATE FUNCTION holdfast.kept_seconds(
    queue text, state text, otherwise float8, rule_queues text[], rule_states text[],
    rule_seconds float8[]
)
RETURNS float8
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    FOR place IN 1..cardinality(rule_queues) LOOP
        IF rule_queues[place] IN ('*', queue) AND rule_states[place] IN ('*', state) THEN
            RETURN rule_seconds[place];
        END IF;
    END LOOP;
    RETURN otherwise;
END
$$;

-- Returns NULL if all were settled, otherwise those that were; so does `settle`.
CREATE FUNCTION holdfast.settle_succeeded(
    ids uuid[], fences bigint[], results json[], kept_seconds float8, rule_queues text[],
    rule_states text[], rule_seconds float8[]
)
RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    settled uuid[];
BEGIN
    WITH ended AS (
        DELETE FROM holdfast.jobs
        WHERE id = ANY (ids) AND lease_owner IS NOT NULL
            AND fence = fences[width_bucket(id, ids)]
        RETURNING *, results[width_bucket(id, ids)] AS end_result
    ),
    kept AS (
        INSERT INTO holdfast.history (
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
            idempotency_key, expires_at, created_at, started_at, progress, requeued_from, breaker,
            trace, parent_id, attempt, snoozes, releases, crashes, worker, run_at, fence, state,
            result, finished_at, kept_until
        )
        SELECT
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
            idempotency_key, expires_at, created_at, started_at, progress, requeued_from, breaker,
            trace, parent_id, attempt, snoozes, releases, crashes, lease_owner, run_at, fence + 1,
            'succeeded', end_result, now(),
            greatest(
                now() + make_interval(secs => CASE
                    WHEN cardinality(rule_queues) = 0 THEN kept_seconds
                    ELSE holdfast.kept_seconds(
                        queue, 'succeeded', kept_seconds, rule_queues, rule_states, rule_seconds
                    )
                END),
                -- A key without its job leads nowhere.
                CASE WHEN idempotency_key IS NOT NULL THEN (
                    SELECT keyed.expires_at FROM holdfast.idempotency_keys AS keyed
                    WHERE keyed.tenant = coalesce(ended.tenant, '')
                        AND keyed.key = ended.idempotency_key AND keyed.job_id = ended.id
                ) END
            )
        FROM ended
        RETURNING kept_until, tenant, queue, state
    ),
    counted AS (
        INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
        SELECT (kept_until AT TIME ZONE 'UTC')::date, coalesce(tenant, ''), queue, state, count(*)
        FROM kept GROUP BY 1, tenant, queue, state
    )
    SELECT CASE WHEN count(*) <> cardinality(ids) THEN coalesce(array_agg(id), '{}') END
    INTO settled FROM ended;
    RETURN settled;
END
$$;

-- Ends the jobs `ended`, which the caller has locked. The other arrays are in the order of `ids`,
-- which are sorted; NULL changes nothing. A job that had ended in place keeps its fence and its end.
CREATE FUNCTION holdfast.end_jobs(
    ended uuid[], ids uuid[], states text[], results json[], error_codes text[],
    error_texts text[], attempts_back integer[], snoozed integer[], released integer[],
    crashed integer[], kept_seconds float8, rule_queues text[], rule_states text[],
    rule_seconds float8[]
)
RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.jobs WHERE id = ANY (ended)
        RETURNING
            *, width_bucket(id, ids) AS place,
            coalesce(states[width_bucket(id, ids)], state) AS end_state
    ),
    kept AS (
        INSERT INTO holdfast.history (
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
            idempotency_key, expires_at, created_at, started_at, progress, requeued_from, breaker,
            trace, parent_id, worker, attempt, snoozes, releases, crashes, state, result,
            error_code, error_text, run_at, fence, finished_at, kept_until
        )
        SELECT
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
            idempotency_key, expires_at, created_at, started_at, progress, requeued_from, breaker,
            trace, parent_id, lease_owner, attempt - coalesce(attempts_back[place], 0),
            snoozes + coalesce(snoozed[place], 0), releases + coalesce(released[place], 0),
            crashes + coalesce(crashed[place], 0), end_state, coalesce(results[place], result),
            coalesce(error_codes[place], error_code), coalesce(error_texts[place], error_text),
            CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END,
            CASE WHEN finished_at IS NULL THEN fence + 1 ELSE fence END,
            coalesce(finished_at, now()),
            greatest(
                coalesce(finished_at, now()) + make_interval(secs => CASE
                    WHEN cardinality(rule_queues) = 0 THEN kept_seconds
                    ELSE holdfast.kept_seconds(
                        queue, end_state, kept_seconds, rule_queues, rule_states, rule_seconds
                    )
                END),
                -- A key without its job leads nowhere.
                CASE WHEN idempotency_key IS NOT NULL THEN (
                    SELECT keyed.expires_at FROM holdfast.idempotency_keys AS keyed
                    WHERE keyed.tenant = coalesce(gone.tenant, '')
                        AND keyed.key = gone.idempotency_key AND keyed.job_id = gone.id
                ) END
            )
        FROM gone
        RETURNING kept_until, tenant, queue, state
    )
    INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
    SELECT (kept_until AT TIME ZONE 'UTC')::date, coalesce(tenant, ''), queue, state, count(*)
    FROM kept GROUP BY 1, tenant, queue, state;
END
$$;

CREATE FUNCTION holdfast.settle(
    ids uuid[], fences bigint[], states text[], delay_seconds float8[], results json[],
    error_codes text[], error_texts text[], attempts_back integer[], snoozed integer[],
    released integer[], crashed integer[], outcomes text[], failure_counts json[],
    kept_seconds float8, rule_queues text[], rule_states text[], rule_seconds float8[]
)
RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    settled uuid[];
    ended uuid[];
    again uuid[];
    woken bigint;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT id, fence, attempt, lease_owner, started_at, width_bucket(id, ids) AS place
        FROM holdfast.jobs
        WHERE id = ANY (ids) AND lease_owner IS NOT NULL
            AND fence = fences[width_bucket(id, ids)]
        ORDER BY id
        FOR UPDATE
    ),
    attempted AS (
        INSERT INTO holdfast.attempts (
            job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
        )
        SELECT
            id, fence, attempt, outcomes[place], lease_owner, started_at, now(),
            error_codes[place], error_texts[place]
        FROM leased WHERE outcomes[place] IS NOT NULL
    )
    SELECT
        CASE WHEN count(*) <> cardinality(ids) THEN coalesce(array_agg(id), '{}') END,
        array_agg(id) FILTER (WHERE states[place] <> 'queued'),
        array_agg(id) FILTER (WHERE states[place] = 'queued')
    INTO settled, ended, again FROM leased;
    IF ended IS NOT NULL THEN
        PERFORM holdfast.end_jobs(
            ended, ids, states, results, error_codes, error_texts, attempts_back, snoozed,
            released, crashed, kept_seconds, rule_queues, rule_states, rule_seconds
        );
    END IF;
    IF again IS NOT NULL THEN
        WITH queued AS (
            UPDATE holdfast.jobs
            SET state = 'queued', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
                alone = false,
                -- width_bucket copies an array of plpgsql, but not the one of a subquery.
                attempt = attempt - attempts_back[width_bucket(id, (SELECT ids))],
                snoozes = snoozes + snoozed[width_bucket(id, (SELECT ids))],
                releases = releases + released[width_bucket(id, (SELECT ids))],
                crashes = crashes + crashed[width_bucket(id, (SELECT ids))],
                run_at = now()
                    + make_interval(secs => delay_seconds[width_bucket(id, (SELECT ids))]),
                error_code = coalesce(error_codes[width_bucket(id, (SELECT ids))], error_code),
                error_text = coalesce(error_texts[width_bucket(id, (SELECT ids))], error_text),
                failures = coalesce(failure_counts[width_bucket(id, (SELECT ids))], failures)
            WHERE id = ANY (again)
            RETURNING queue, run_at
        )
        SELECT count(pg_notify('holdfast', 'q:' || queue)) INTO woken
        FROM (SELECT DISTINCT queue FROM queued WHERE run_at <= now()) AS due;
    END IF;
    RETURN settled;
END
$$;

CREATE FUNCTION holdfast.cancel(
    ids uuid[], waiting_only boolean, reason text, kept_seconds float8, rule_queues text[],
    rule_states text[], rule_seconds float8[]
)
RETURNS TABLE (id uuid, was_running boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    ended uuid[];
    were_running boolean[];
    texts text[];
BEGIN
    WITH found AS MATERIALIZED (
        SELECT
            id, fence, attempt, lease_owner, started_at,
            coalesce(reason, 'the job was canceled while it ' || CASE
                WHEN lease_owner IS NULL THEN 'waited' ELSE 'ran'
            END) AS why
        FROM holdfast.jobs
        WHERE id = ANY (ids) AND finished_at IS NULL
            AND (lease_owner IS NULL OR NOT waiting_only)
        ORDER BY id
        FOR UPDATE
    ),
    attempted AS (
        INSERT INTO holdfast.attempts (
            job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
        )
        SELECT
            id, fence, attempt, 'canceled', lease_owner, started_at, now(), 'CANCELED', why
        FROM found WHERE lease_owner IS NOT NULL
    )
    SELECT array_agg(id), array_agg(lease_owner IS NOT NULL), array_agg(why)
    INTO ended, were_running, texts FROM found;
    IF ended IS NULL THEN
        RETURN;
    END IF;
    PERFORM holdfast.end_jobs(
        ended, ended, array_fill('canceled'::text, ARRAY[cardinality(ended)]), NULL,
        array_fill('CANCELED'::text, ARRAY[cardinality(ended)]), texts, NULL, NULL, NULL, NULL,
        kept_seconds, rule_queues, rule_states, rule_seconds
    );
    PERFORM pg_notify('holdfast', 'c:' || canceled.id)
    FROM unnest(ended, were_running) AS canceled (id, was_running) WHERE was_running;
    RETURN QUERY SELECT * FROM unnest(ended, were_running);
END
$$;

CREATE FUNCTION holdfast.retry(job_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due text;
BEGIN
    UPDATE holdfast.jobs SET run_at = now(), held_run_at = NULL
    WHERE id = job_id AND lease_owner IS NULL AND finished_at IS NULL
    RETURNING queue INTO due;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('holdfast', 'q:' || due);
    RETURN true;
END
$$;

-- The row in `requeues` decides between two concurrent requeues of the same job.
CREATE FUNCTION holdfast.requeue(
    ended_id uuid, next_id uuid, other_arguments json, once boolean, longest_seconds float8
)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due text;
BEGIN
    WITH old AS (
        SELECT
            id, arguments, name, queue, priority, max_attempts, tenant, correlation_id, tags,
            breaker, parent_id, now() + make_interval(secs => longest_seconds) AS kept_until
        FROM holdfast.jobs WHERE id = ended_id AND finished_at IS NOT NULL
        UNION ALL
        SELECT
            id, arguments, name, queue, priority, max_attempts, tenant, correlation_id, tags,
            breaker, parent_id, kept_until
        FROM holdfast.history WHERE id = ended_id
    ),
    noted AS (
        INSERT INTO holdfast.requeues (job_id, new_id, requeued_at, kept_until)
        SELECT id, next_id, now(), kept_until FROM old
        ON CONFLICT (job_id) DO UPDATE
        SET new_id = excluded.new_id, requeued_at = excluded.requeued_at
        WHERE NOT once
        RETURNING job_id
    )
    INSERT INTO holdfast.jobs (
        id, requeued_from, arguments, name, queue, priority, max_attempts, tenant, correlation_id,
        tags, breaker, parent_id
    )
    SELECT
        next_id, id, coalesce(other_arguments, arguments), name, queue, priority, max_attempts,
        tenant, correlation_id, tags, breaker, parent_id
    FROM old
    JOIN noted ON noted.job_id = old.id
    RETURNING queue INTO due;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('holdfast', 'q:' || due);
    RETURN true;
END
$$;

-- Reclaims leases that expired and ends waiting jobs that did; or reclaims all leases of a worker
-- that died; or does either with one job only.
CREATE FUNCTION holdfast.reclaim(
    only_job uuid, dead_worker text, back_seconds float8, jobs_max integer, attempt_outcome text,
    code text, reason text, crashes_in_company_max integer, kept_seconds float8,
    rule_queues text[], rule_states text[], rule_seconds float8[]
)
RETURNS TABLE (
    job_id uuid, name text, queue text, tenant text, correlation_id text, attempt integer,
    fence bigint, state text, worker text, error_code text, suspect boolean
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    since timestamptz := coalesce(now() - make_interval(secs => back_seconds), '-infinity');
    lost uuid[] := '{}';
    expired uuid[] := '{}';
    queued_again integer := 0;
    ended uuid[];
    states text[];
    codes text[];
    texts text[];
    crashed integer[];
BEGIN
    IF only_job IS NOT NULL THEN
        lost := ARRAY(
            SELECT id FROM holdfast.jobs
            WHERE id = only_job AND lease_owner IS NOT NULL
                AND CASE
                    WHEN dead_worker IS NULL THEN lease_expires_at < now()
                    ELSE lease_owner = dead_worker
                END
            FOR UPDATE SKIP LOCKED
        );
        expired := ARRAY(
            SELECT id FROM holdfast.jobs
            WHERE id = only_job AND lease_owner IS NULL AND finished_at IS NULL
                AND expires_at <= now() AND dead_worker IS NULL
            FOR UPDATE SKIP LOCKED
        );
    ELSIF dead_worker IS NOT NULL THEN
        lost := ARRAY(
            SELECT id FROM holdfast.jobs WHERE state = 'running' AND lease_owner = dead_worker
            LIMIT jobs_max
            FOR UPDATE SKIP LOCKED
        );
    ELSE
        lost := ARRAY(
            SELECT id FROM holdfast.jobs
            WHERE state = 'running' AND lease_expires_at < now() AND lease_expires_at >= since
            ORDER BY lease_expires_at LIMIT jobs_max
            FOR UPDATE SKIP LOCKED
        );
        expired := ARRAY(
            SELECT id FROM holdfast.jobs
            WHERE state = 'queued' AND expires_at IS NOT NULL AND expires_at <= now()
                AND expires_at >= since
            ORDER BY expires_at LIMIT jobs_max - cardinality(lost)
            FOR UPDATE SKIP LOCKED
        );
    END IF;
    IF cardinality(lost) > 0 THEN
        RETURN QUERY WITH leased AS MATERIALIZED (
            SELECT id, fence, attempt, max_attempts, alone, lease_owner, started_at
            FROM holdfast.jobs WHERE id = ANY (lost)
        ),
        attempted AS (
            INSERT INTO holdfast.attempts (
                job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code,
                error_text
            )
            SELECT
                id, fence, attempt, attempt_outcome, lease_owner, started_at, now(), code,
                format('the worker %s %s', lease_owner, reason)
            FROM leased
        ),
        queued AS (
            UPDATE holdfast.jobs
            SET state = 'queued', fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
                alone = false, run_at = now(), error_code = code,
                error_text = format('the worker %s %s', lease_owner, reason),
                crashes = crashes + 1,
                -- A job that ran beside others may be innocent: give back its last attempt, to run
                -- alone.
                attempt = CASE WHEN attempt >= max_attempts THEN attempt - 1 ELSE attempt END,
                suspect = suspect OR crashes + 1 >= crashes_in_company_max
                    OR attempt + 1 >= max_attempts
            WHERE id = ANY (ARRAY(
                SELECT id FROM leased WHERE NOT (attempt >= max_attempts AND alone)
            ))
            RETURNING id, name, queue, tenant, correlation_id, fence, state, error_code, suspect
        ),
        woken AS MATERIALIZED (
            SELECT count(pg_notify('holdfast', 'q:' || queue))
            FROM (SELECT DISTINCT queue FROM queued) AS due
        )
        SELECT
            id, name, queue, coalesce(tenant, 'default'), correlation_id, leased.attempt,
            queued.fence, state, lease_owner, error_code, suspect
        FROM queued
        JOIN leased USING (id)
        CROSS JOIN woken;
        GET DIAGNOSTICS queued_again = ROW_COUNT;
    END IF;
    IF queued_again = cardinality(lost) + cardinality(expired) THEN
        RETURN;
    END IF;
    SELECT
        array_agg(id), array_agg(CASE WHEN lease_owner IS NULL THEN 'canceled' ELSE 'dead' END),
        array_agg(CASE WHEN lease_owner IS NULL THEN 'EXPIRED' ELSE code END),
        array_agg(CASE
            WHEN lease_owner IS NULL THEN 'the job expired before it started'
            ELSE format('the worker %s %s', lease_owner, reason)
        END),
        array_agg((lease_owner IS NOT NULL)::integer)
    INTO ended, states, codes, texts, crashed
    FROM (
        SELECT id, lease_owner FROM holdfast.jobs
        -- Of those that were lost, the ones with a lease were not queued again.
        WHERE id = ANY (expired || lost) AND (lease_owner IS NOT NULL OR id = ANY (expired))
        ORDER BY id
    ) AS ending;
    RETURN QUERY SELECT
        id, name, queue, coalesce(tenant, 'default'), correlation_id, attempt, fence + 1,
        states[width_bucket(id, ended)], lease_owner,
        codes[width_bucket(id, ended)], false
    FROM holdfast.jobs WHERE id = ANY (ended);
    PERFORM holdfast.end_jobs(
        ended, ended, states, NULL, codes, texts, NULL, NULL, NULL, crashed, kept_seconds,
        rule_queues, rule_states, rule_seconds
    );
END
$$;

-- Moves what ended in place to the history: some, or one job.
CREATE FUNCTION holdfast.move_leftovers(
    only_job uuid, jobs_max integer, kept_seconds float8, rule_queues text[], rule_states text[],
    rule_seconds float8[]
)
RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended uuid[];
BEGIN
    IF only_job IS NULL THEN
        ended := ARRAY(
            SELECT id FROM holdfast.jobs WHERE finished_at IS NOT NULL
            ORDER BY id LIMIT jobs_max
            FOR UPDATE SKIP LOCKED
        );
    ELSE
        ended := ARRAY(
            SELECT id FROM holdfast.jobs WHERE id = only_job AND finished_at IS NOT NULL
            FOR UPDATE
        );
    END IF;
    PERFORM holdfast.end_jobs(
        ended, ended, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, kept_seconds, rule_queues,
        rule_states, rule_seconds
    );
    RETURN QUERY SELECT unnest(ended);
END
$$;

CREATE FUNCTION holdfast.forget_history(rows_max integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY WITH forgotten AS (
        DELETE FROM holdfast.history_rest
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM holdfast.history_rest WHERE kept_until <= now()
            ORDER BY kept_until LIMIT rows_max
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING kept_until, tenant, queue, state
    ),
    counted AS (
        INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
        SELECT (kept_until AT TIME ZONE 'UTC')::date, coalesce(tenant, ''), queue, state, -count(*)
        FROM forgotten GROUP BY 1, tenant, queue, state
    )
    SELECT queue FROM forgotten;
END
$$;

CREATE FUNCTION holdfast.forget_attempts(longest_seconds float8, rows_max integer)
RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.attempts
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.attempts
        WHERE ended_at <= now() - make_interval(secs => longest_seconds)
            AND NOT EXISTS (SELECT FROM holdfast.jobs WHERE jobs.id = attempts.job_id)
        ORDER BY ended_at LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id;
END
$$;

CREATE FUNCTION holdfast.forget_keys(rows_max integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.idempotency_keys
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.idempotency_keys WHERE expires_at <= now()
        ORDER BY expires_at LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING key;
END
$$;

-- History is dropped by the day, and that may be late: keep a requeue longer than its job.
CREATE FUNCTION holdfast.forget_requeues(rows_max integer) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.requeues
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.requeues WHERE kept_until <= now() - interval '2 days'
        ORDER BY kept_until LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id;
END
$$;

CREATE FUNCTION holdfast.forget_workers(leases float8, rows_max integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.workers
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.workers
        WHERE seen_at <= now() - make_interval(secs => lease_seconds * leases)
        LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id;
END
$$;

CREATE FUNCTION holdfast.deregister(worker text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM holdfast.workers WHERE id = worker;
END
$$;

-- A closed breaker that unparks nothing has no parked jobs.
CREATE FUNCTION holdfast.forget_breakers(kept_seconds float8, rows_max integer)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.breakers
    WHERE key = ANY (ARRAY(
        SELECT key FROM holdfast.breakers
        WHERE opened_at IS NULL AND NOT letting_go
            AND changed_at <= now() - make_interval(secs => kept_seconds)
        ORDER BY changed_at LIMIT rows_max
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING key;
END
$$;

-- Returns whether the breaker was known. One with parked jobs stays until they are unparked; then
-- `end_unparking` deletes it.
CREATE FUNCTION holdfast.forget_breaker(forgotten text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM holdfast.breakers WHERE key = forgotten FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- A later statement than the lock: it sees every job that was parked.
    IF EXISTS (
        SELECT FROM holdfast.jobs
        WHERE breaker = forgotten AND state = 'queued' AND run_at = 'infinity'
            AND held_run_at IS NOT NULL
    ) THEN
        UPDATE holdfast.breakers
        SET opened_at = NULL, opened_by = NULL, opened_because = NULL, next_probe_at = NULL,
            probed_id = NULL, probes = 0, failures = '{}', worked_at = NULL, letting_go = true,
            times_opened = 0, changed_at = now()
        WHERE key = forgotten;
    ELSE
        DELETE FROM holdfast.breakers WHERE key = forgotten;
    END IF;
    RETURN true;
END
$$;

CREATE FUNCTION holdfast.end_unparking(keys text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    done text[] := ARRAY(
        SELECT key FROM holdfast.breakers
        WHERE key = ANY (keys) AND (
            SELECT id FROM holdfast.jobs
            WHERE state = 'queued' AND jobs.breaker = breakers.key AND run_at = 'infinity'
                AND held_run_at IS NOT NULL
            ORDER BY run_at, id LIMIT 1
        ) IS NULL
    );
BEGIN
    DELETE FROM holdfast.breakers
    WHERE key = ANY (done) AND times_opened = 0 AND failures = '{}';
    UPDATE holdfast.breakers SET letting_go = false WHERE key = ANY (done);
END
$$;

-- For roles without privileges on tables: the parts of an enqueue, and the schema's version.

CREATE FUNCTION holdfast.enqueue(
    ids uuid[], names text[], queues text[], priorities smallint[], arguments_of json[],
    max_attempts_of integer[], tenants text[], correlation_ids text[], keys text[],
    breakers text[], traces text[], parent_ids uuid[], run_ats timestamptz[],
    delay_seconds float8[], expires_in_seconds float8[], tags_of text[]
)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    woken bigint;
BEGIN
    WITH added AS (
        INSERT INTO holdfast.jobs (
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id,
            idempotency_key, breaker, trace, parent_id, run_at, expires_at, tags
        )
        SELECT
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id,
            idempotency_key, breaker, trace, parent_id,
            coalesce(run_at, now() + make_interval(secs => delay)),
            now() + make_interval(secs => expires_in), tags::text[]
        FROM unnest(
            ids, names, queues, priorities, arguments_of, max_attempts_of, tenants,
            correlation_ids, keys, breakers, traces, parent_ids, run_ats, delay_seconds,
            expires_in_seconds, tags_of
        ) AS given (
            id, name, queue, priority, arguments, max_attempts, tenant, correlation_id,
            idempotency_key, breaker, trace, parent_id, run_at, delay, expires_in, tags
        )
        RETURNING queue, run_at
    )
    SELECT count(pg_notify('holdfast', 'q:' || queue)) INTO woken
    FROM (SELECT DISTINCT queue FROM added WHERE run_at <= now()) AS due;
END
$$;

CREATE FUNCTION holdfast.keep_keys(
    tenants text[], keys text[], job_ids uuid[], body_hashes bytea[], seconds float8[]
)
RETURNS TABLE (tenant text, key text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY INSERT INTO holdfast.idempotency_keys (tenant, key, job_id, body_hash, expires_at)
    SELECT tenant, key, job_id, body_hash, now() + make_interval(secs => kept_seconds)
    FROM unnest(tenants, keys, job_ids, body_hashes, seconds)
        AS given (tenant, key, job_id, body_hash, kept_seconds)
    ON CONFLICT (tenant, key) DO UPDATE
    SET job_id = excluded.job_id, body_hash = excluded.body_hash, expires_at = excluded.expires_at
    WHERE idempotency_keys.expires_at <= now()
    RETURNING idempotency_keys.tenant, idempotency_keys.key;
END
$$;

-- Whoever guesses a key learns the id of its job, but nothing of what is in it.
CREATE FUNCTION holdfast.kept_keys(tenants text[], keys text[], hashes bytea[])
RETURNS TABLE (tenant text, key text, job_id uuid, body_hash bytea)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT
        kept.tenant, kept.key, kept.job_id,
        CASE WHEN kept.body_hash = ANY (hashes) THEN kept.body_hash ELSE '\x00'::bytea END
    FROM unnest(tenants, keys) AS wanted (tenant, key)
    CROSS JOIN LATERAL (
        SELECT tenant, key, job_id, body_hash FROM holdfast.idempotency_keys AS known
        WHERE known.tenant = wanted.tenant AND known.key = wanted.key
    ) AS kept;
END
$$;

CREATE FUNCTION holdfast.ended_id(ids uuid[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (ARRAY(SELECT id::text FROM holdfast.history WHERE id = ANY (ids)))[1];
END
$$;

-- A caller that enqueues the same job with the same key gets the job that has the key: to see it, the
-- caller has to know what is in it.
CREATE FUNCTION holdfast.keyed_job(wanted_id uuid, only_tenant text, hashes bytea[])
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT to_json(job)::text
        FROM (
            SELECT
                id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
                idempotency_key, expires_at, created_at, started_at, progress, requeued_from,
                breaker, trace, parent_id, state, attempt AS attempts, snoozes, releases, crashes,
                fence, finished_at, result, error_code, error_text, lease_owner, lease_expires_at,
                CASE run_at
                    WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at
                END AS run_at,
                false AS in_history
            FROM holdfast.jobs
            UNION ALL
            SELECT
                id, name, queue, priority, arguments, max_attempts, tenant, correlation_id, tags,
                idempotency_key, expires_at, created_at, started_at, progress, requeued_from,
                breaker, trace, parent_id, state, attempt, snoozes, releases, crashes, fence,
                finished_at, result, error_code, error_text, NULL, NULL, run_at, true
            FROM holdfast.history
        ) AS job
        WHERE id = wanted_id AND (only_tenant IS NULL OR coalesce(tenant, 'default') = only_tenant)
            AND EXISTS (
                SELECT FROM holdfast.idempotency_keys AS known
                WHERE known.tenant = coalesce(job.tenant, '') AND known.key = job.idempotency_key
                    AND known.job_id = job.id AND known.body_hash = ANY (hashes)
            )
    );
END
$$;

CREATE FUNCTION holdfast.version() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT max(version) FROM holdfast.schema_version);
END
$$;

-- Older functions. A cap counts the jobs of all tenants, whichever tenant the transaction is for.

CREATE OR REPLACE FUNCTION holdfast.lock_caps(
    wanted text[], unwanted text[], OUT queues text[], OUT spare bigint[]
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
            GROUP BY queue
        ) AS counted ON counted.queue = capped.name
    ) AS found
    WHERE running < running_max;
    IF tenant <> '' THEN
        PERFORM set_config('holdfast.tenant', tenant, true);
    END IF;
END
$$;

ALTER FUNCTION holdfast.fold_history_counts(integer)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

-- Nobody may call a function without a grant. Roles that may work with the jobs may call the
-- functions that do that work.
REVOKE EXECUTE ON FUNCTION
    holdfast.kept_seconds, holdfast.end_jobs, holdfast.settle_succeeded, holdfast.settle,
    holdfast.cancel, holdfast.retry, holdfast.requeue, holdfast.reclaim, holdfast.move_leftovers,
    holdfast.forget_history, holdfast.forget_attempts, holdfast.forget_keys,
    holdfast.forget_requeues, holdfast.forget_workers, holdfast.deregister,
    holdfast.forget_breakers, holdfast.forget_breaker, holdfast.end_unparking, holdfast.enqueue,
    holdfast.keep_keys, holdfast.kept_keys, holdfast.ended_id, holdfast.keyed_job,
    holdfast.version, holdfast.lock_caps, holdfast.strike, holdfast.lot, holdfast.in_seconds,
    holdfast.history_day_name, holdfast.add_history_day, holdfast.drop_history_day,
    holdfast.fold_history_counts, holdfast.refuse_move, holdfast.refuse_change
FROM PUBLIC;
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT
            needed.functions,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role,
            CASE WHEN is_grantable THEN 'WITH GRANT OPTION' ELSE '' END AS option
        FROM pg_class AS jobs
        CROSS JOIN aclexplode(coalesce(jobs.relacl, acldefault('r', jobs.relowner)))
        JOIN (
            VALUES
            ('SELECT', 'holdfast.in_seconds'),
            ('INSERT', 'holdfast.lot, holdfast.requeue'),
            ('UPDATE', 'holdfast.lot, holdfast.lock_caps, holdfast.strike, holdfast.retry'),
            (
                'DELETE',
                'holdfast.settle_succeeded, holdfast.settle, holdfast.cancel, holdfast.reclaim,'
                ' holdfast.move_leftovers, holdfast.forget_history, holdfast.forget_attempts,'
                ' holdfast.forget_keys, holdfast.forget_requeues, holdfast.forget_workers,'
                ' holdfast.deregister, holdfast.forget_breakers, holdfast.forget_breaker,'
                ' holdfast.end_unparking, holdfast.add_history_day, holdfast.drop_history_day,'
                ' holdfast.fold_history_counts'
            )
        ) AS needed (privilege, functions) ON needed.privilege = privilege_type
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> jobs.relowner
    LOOP
        EXECUTE format(
            'GRANT EXECUTE ON FUNCTION %s TO %s %s',
            allowed.functions, allowed.role, allowed.option
        );
    END LOOP;
END
$$;
