-- Keep a job at least as long as its key: a key without its job leads nowhere.
coalesce(
    (
        SELECT kept.expires_at FROM idempotency_keys AS kept
        WHERE kept.tenant = coalesce(jobs.tenant, '')
            AND kept.key = jobs.idempotency_key AND kept.job_id = jobs.id
    ),
    0
)
