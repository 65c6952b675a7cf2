-- Ends jobs that succeeded. Included by jobs.sql.
ended AS (
    DELETE FROM holdfast.jobs
    WHERE id = ANY (:ids::uuid[]) AND lease_owner IS NOT NULL
        AND fence = (:fences::bigint[])[width_bucket(id, :ids::uuid[])]
    RETURNING
        *, 'succeeded' AS end_state, NULL AS end_code, NULL AS end_text, 0 AS crashed,
        (:results::json[])[width_bucket(id, :ids::uuid[])] AS end_result
),
{ending}
