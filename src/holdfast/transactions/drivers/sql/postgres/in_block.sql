-- Is this the transaction that a block began? `marks.sql` sets the setting, which ends with the
-- transaction. Those that asyncpg begins are DEFERRABLE instead, which has no other effect here and
-- costs no statement. Included by jobs.sql and marks.sql.
(
    coalesce(current_setting('holdfast.block', true) = 'open', false)
    OR current_setting('transaction_deferrable')::boolean
)
