-- Where nothing is known of the caps, all queues that have one are left out. Included by jobs.sql and
-- holds.sql.
room AS NOT MATERIALIZED (
    SELECT '{}'::text[] AS queues, '{}'::bigint[] AS spare
)
