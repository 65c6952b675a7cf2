-- Which ended jobs were enqueued anew, and as which job last. A table of its own: the new job may be
-- forgotten long before the old one.
CREATE TABLE holdfast.requeues (
    job_id uuid PRIMARY KEY,
    new_id uuid NOT NULL,
    requeued_at timestamptz NOT NULL,
    kept_until timestamptz NOT NULL
);
CREATE INDEX requeues_kept_until ON holdfast.requeues (kept_until);

-- Whoever may work with the jobs may requeue them.
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
        JOIN pg_class AS requeues ON requeues.oid = 'holdfast.requeues'::regclass
        WHERE jobs.oid = 'holdfast.jobs'::regclass AND grantee <> requeues.relowner
    LOOP
        EXECUTE format(
            'GRANT %s ON holdfast.requeues TO %s %s',
            allowed.privilege, allowed.role, allowed.option
        );
    END LOOP;
END
$$;
