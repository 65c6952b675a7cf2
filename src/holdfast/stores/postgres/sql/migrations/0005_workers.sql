-- The workers that are there. Each tells of itself at every renewal, so that half of a page is
-- kept free: then an update touches no index and leaves nothing to vacuum.
CREATE TABLE holdfast.workers (
    id text COLLATE "C" PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    running integer NOT NULL,
    full_queues text[] NOT NULL, -- those that have reached their limits
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues json, -- with their limits; NULL for all
    names text[] NOT NULL,
    concurrency integer NOT NULL,
    suspects_only boolean NOT NULL,
    lease_seconds double precision NOT NULL,
    started_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Whoever may work with the jobs may tell that it is there.
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
        JOIN pg_class AS workers ON workers.oid = 'holdfast.workers'::regclass
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> workers.relowner
    LOOP
        EXECUTE format(
            'GRANT %s ON holdfast.workers TO %s %s',
            allowed.privilege, allowed.role, allowed.option
        );
    END LOOP;
END
$$;
