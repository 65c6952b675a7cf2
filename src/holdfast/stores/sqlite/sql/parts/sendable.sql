-- The parked job is due, and this worker may run it.
state = 'queued' AND held_run_at <= :now AND {known} AND {of_tenant}
AND queue NOT IN (SELECT value FROM json_each(:except_queues))
