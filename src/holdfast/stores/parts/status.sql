-- The fields of `JobStatus` that live and ended jobs have alike, and the tenant.
id, tenant, state, attempt AS attempts, max_attempts, started_at, finished_at, progress, error_code,
error_text
