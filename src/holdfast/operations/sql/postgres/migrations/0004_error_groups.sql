-- Groups of dead and failed jobs by what went wrong, for each tenant, and once for all tenants
-- together. `jobs` are those that are still in the history, `jobs_ever` those since `first_seen`.
CREATE TABLE holdfast.error_groups (
    tenant text COLLATE "C" NOT NULL, -- '': all tenants together
    fingerprint text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    error_code text COLLATE "C",
    shape text NOT NULL,
    jobs bigint NOT NULL,
    jobs_ever bigint NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    example_id uuid NOT NULL, -- the job that ended last
    queues text NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('new', 'acknowledged', 'resolved', 'back')),
    state_since timestamptz,
    state_by text,
    note text,
    resolved_in text, -- a version of the application
    PRIMARY KEY (tenant, fingerprint),
    CHECK (jobs >= 0 AND jobs <= jobs_ever),
    CHECK (first_seen <= last_seen),
    CHECK (state = 'new' OR state_since IS NOT NULL)
);
CREATE INDEX error_groups_recent ON holdfast.error_groups (tenant, last_seen, fingerprint);
CREATE INDEX error_groups_largest ON holdfast.error_groups (tenant, jobs, fingerprint);
CREATE INDEX error_groups_tenants ON holdfast.error_groups (fingerprint, jobs);
CREATE INDEX error_groups_empty ON holdfast.error_groups (last_seen) WHERE jobs = 0;

-- The jobs that the groups count: each is counted in the transaction that adds its row.
CREATE TABLE holdfast.error_group_jobs (
    job_id uuid PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    ended_at timestamptz NOT NULL,
    kept_until timestamptz NOT NULL
);
CREATE INDEX error_group_jobs_group ON holdfast.error_group_jobs (fingerprint, job_id);
CREATE INDEX error_group_jobs_tenant ON holdfast.error_group_jobs (tenant, fingerprint, job_id);
CREATE INDEX error_group_jobs_kept ON holdfast.error_group_jobs (kept_until);

-- How far the groups follow the history: `newest` for jobs as they end, `late` for those that were
-- committed long after their end. Whoever advances a place counts the jobs up to it.
CREATE TABLE holdfast.error_group_places (
    name text COLLATE "C" PRIMARY KEY CHECK (name IN ('newest', 'late')),
    ended_at timestamptz NOT NULL,
    job_id uuid NOT NULL,
    turn bigint NOT NULL DEFAULT 0
);
INSERT INTO holdfast.error_group_places (name, ended_at, job_id) VALUES
    ('newest', 'epoch', '00000000-0000-0000-0000-000000000000'),
    ('late', 'epoch', '00000000-0000-0000-0000-000000000000');

-- Some time after a job has left the history: until then, it could be counted again. The caller
-- subtracts the jobs from their groups.
CREATE FUNCTION holdfast.forget_error_group_jobs(after_seconds float8, rows_max bigint)
RETURNS TABLE (tenant text, fingerprint text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.error_group_jobs AS expired
    WHERE expired.job_id = ANY (ARRAY(
        SELECT known.job_id FROM holdfast.error_group_jobs AS known
        WHERE known.kept_until < now() - make_interval(secs => after_seconds)
        ORDER BY known.kept_until LIMIT rows_max
    ))
    RETURNING expired.tenant, expired.fingerprint;
END
$$;

-- A resolved group may come back, so it is kept for longer than its jobs.
CREATE FUNCTION holdfast.forget_error_groups(resolved_seconds float8, rows_max bigint)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY DELETE FROM holdfast.error_groups
    WHERE (tenant, fingerprint) IN (
        SELECT tenant, fingerprint FROM holdfast.error_groups
        WHERE jobs = 0 AND (
            state <> 'resolved' OR state_since < now() - make_interval(secs => resolved_seconds)
        )
        ORDER BY last_seen LIMIT rows_max
    ) AND jobs = 0
    RETURNING fingerprint;
END
$$;

REVOKE EXECUTE ON FUNCTION holdfast.forget_error_group_jobs, holdfast.forget_error_groups
FROM PUBLIC;
