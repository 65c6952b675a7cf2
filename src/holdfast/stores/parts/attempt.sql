-- The columns of an attempt.
job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
