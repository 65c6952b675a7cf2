-- The queues with a cap in which jobs can start, and how many in each. Included by jobs.sql and
-- holds.sql.
room AS MATERIALIZED (
    SELECT queues, spare FROM holdfast.lock_caps(:queues::text[], :except_queues::text[])
)
