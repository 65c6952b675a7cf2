-- name: mark
SELECT
    current_setting('transaction_isolation') AS isolation,
    set_config('holdfast.block', 'open', true) AS mark

-- name: is_marked
SELECT {in_block} AS is_marked
