-- The job is in the lane `turn`, and a worker that knows its name may run it now.
state = 'queued' AND queue = turn.queue AND priority = turn.priority
AND run_at <= now() AND name = ANY (:names::text[]) AND NOT suspect AND {of_tenant}
AND {breaker_closed}
