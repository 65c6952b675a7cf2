-- Where nothing is known of the caps, all queues that have one are left out. Included by claim.sql.
caps AS NOT MATERIALIZED (
    SELECT '{}'::text[] AS queues, '{}'::bigint[] AS spare
)
