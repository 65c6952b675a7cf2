-- The job is one of the lane `turn`, and a worker that knows its name may run it now. Included by
-- claim.sql.
state = 'queued' AND queue = turn.queue AND priority = turn.priority
AND run_at <= now() AND name = ANY (:names::text[]) AND NOT suspect AND {breaker_closed}
