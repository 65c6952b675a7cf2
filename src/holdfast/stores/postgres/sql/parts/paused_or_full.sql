-- The paused queues, and the capped ones except those known not to be full. Only the holder of the
-- lock on a queue's row knows that.
ARRAY(
    SELECT name FROM holdfast.queues
    WHERE paused_at IS NOT NULL
        OR running_max IS NOT NULL AND name <> ALL ((SELECT queues FROM caps)::text[])
)
