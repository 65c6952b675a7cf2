-- The queues that are paused, and those with a cap, but for those in which there is room. One may
-- only know of room by holding the lock of the queue's row. Included by jobs.sql and holds.sql.
ARRAY(
    SELECT name
    FROM holdfast.queues
    WHERE paused_at IS NOT NULL
        OR running_max IS NOT NULL AND name <> ALL ((SELECT queues FROM room)::text[])
)
