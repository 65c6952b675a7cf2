-- The queues in which nothing runs until an operator says so.
(SELECT name FROM queues WHERE paused_at IS NOT NULL OR running_max = 0)
