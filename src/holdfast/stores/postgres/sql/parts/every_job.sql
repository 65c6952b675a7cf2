-- All jobs, live and ended: the fields of `Job`, and where it was found.
(
    SELECT
        {job}, lease_owner, lease_expires_at,
        CASE run_at WHEN 'infinity' THEN coalesce(held_run_at, run_at) ELSE run_at END AS run_at,
        false AS in_history
    FROM holdfast.jobs
    UNION ALL
    SELECT {job}, NULL::text COLLATE "C", NULL::timestamptz, run_at, true FROM holdfast.history
)
