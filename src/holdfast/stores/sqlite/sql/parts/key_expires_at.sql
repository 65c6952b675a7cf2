-- A job is kept at least as long as its key, which would lead to nothing otherwise. Included by
-- settle.sql and upkeep.sql.
coalesce(
    (
        SELECT kept.expires_at FROM idempotency_keys AS kept
        WHERE kept.tenant = coalesce(jobs.tenant, '')
            AND kept.key = jobs.idempotency_key AND kept.job_id = jobs.id
    ),
    0
)
