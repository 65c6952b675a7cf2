-- The queues that are paused, and the capped ones, but for those that are not full. One may only
-- know that by holding the lock of the queue's row. Included by claim.sql.
ARRAY(
    SELECT name
    FROM holdfast.queues
    WHERE paused_at IS NOT NULL
        OR running_max IS NOT NULL AND name <> ALL ((SELECT queues FROM caps)::text[])
)
