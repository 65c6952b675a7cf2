-- The queues in which nothing runs until an operator says so.
(ARRAY(SELECT name FROM holdfast.queues WHERE paused_at IS NOT NULL OR running_max = 0))
