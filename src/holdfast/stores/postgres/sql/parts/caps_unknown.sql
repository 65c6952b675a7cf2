-- Without the counts of running jobs, leave out all capped queues.
caps AS NOT MATERIALIZED (
    SELECT '{}'::text[] AS queues, '{}'::bigint[] AS spare
)
