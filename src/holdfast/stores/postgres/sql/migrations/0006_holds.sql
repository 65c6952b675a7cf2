-- A job may depend on something that a breaker guards, and may carry the trace that it belongs to.
-- A job that a breaker holds has the due time 'infinity', where no claim looks, and the due time
-- that it had in `held_run_at`.
ALTER TABLE holdfast.jobs
    ADD COLUMN breaker text COLLATE "C",
    ADD COLUMN trace text COLLATE "C",
    ADD COLUMN held_run_at timestamptz;
ALTER TABLE holdfast.history
    ADD COLUMN breaker text COLLATE "C",
    ADD COLUMN trace text COLLATE "C";

CREATE INDEX jobs_breaker ON holdfast.jobs (breaker, run_at, id)
    WHERE state = 'queued' AND breaker IS NOT NULL;

-- What operators said about queues; others have no row.
CREATE TABLE holdfast.queues (
    name text COLLATE "C" PRIMARY KEY,
    paused_at timestamptz,
    paused_by text,
    paused_because text,
    running_max integer, -- over all workers
    CONSTRAINT queues_running_max CHECK (running_max >= 0)
);

-- What is known of a dependency that has failed; one that works has no row.
CREATE TABLE holdfast.breakers (
    key text COLLATE "C" PRIMARY KEY,
    failures timestamptz[] NOT NULL DEFAULT '{}', -- the last ones, oldest first
    window_seconds double precision NOT NULL,
    probe_seconds double precision NOT NULL,
    opened_at timestamptz, -- NULL while it is closed
    opened_by text, -- NULL if it opened by itself
    opened_because text,
    next_probe_at timestamptz, -- NULL if none is made
    probed_id uuid, -- the last job that was sent ahead; the next one has its turn after it
    letting_go boolean NOT NULL DEFAULT false, -- closed, and jobs are still held
    times_opened integer NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT breakers_letting_go CHECK (NOT letting_go OR opened_at IS NULL)
);
CREATE INDEX breakers_holding ON holdfast.breakers (key)
    WHERE opened_at IS NOT NULL OR letting_go;
CREATE INDEX breakers_changed ON holdfast.breakers (changed_at);

-- Whoever may work with the jobs may hold them.
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
        JOIN pg_class AS queues ON queues.oid = 'holdfast.queues'::regclass
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> queues.relowner
    LOOP
        EXECUTE format(
            'GRANT %s ON holdfast.queues, holdfast.breakers TO %s %s',
            allowed.privilege, allowed.role, allowed.option
        );
    END LOOP;
END
$$;
