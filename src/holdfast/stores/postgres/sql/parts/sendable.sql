-- The parked job is due, and this worker may run it.
held_run_at <= now() AND name = ANY (:names::text[]) AND {of_tenant}
AND (:queues::text[] IS NULL OR queue = ANY (:queues))
AND queue <> ALL (:except_queues::text[]) AND queue <> ALL ({paused_or_full})
