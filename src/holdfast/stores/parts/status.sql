-- The fields of `JobStatus` that live and ended jobs have alike, the tenant and the name.
id, tenant, name, state, attempt AS attempts, max_attempts, started_at, finished_at, progress,
error_code, error_text
