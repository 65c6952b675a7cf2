-- When the job is due; for a parked job, when it was.
CASE run_at WHEN 9223372036854775807 THEN coalesce(held_run_at, created_at) ELSE run_at END
