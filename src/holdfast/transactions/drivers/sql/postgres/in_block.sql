-- Is this the transaction that a block began? `marks.sql` sets the setting, which ends with the
-- transaction; those that asyncpg begins are DEFERRABLE instead, which says nothing to PostgreSQL
-- here and costs no statement. Included by jobs.sql and marks.sql.
(
    coalesce(current_setting('holdfast.block', true) = 'open', false)
    OR current_setting('transaction_deferrable')::boolean
)
