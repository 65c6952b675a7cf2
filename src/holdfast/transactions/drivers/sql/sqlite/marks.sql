-- A savepoint ends with its transaction, and those of the caller are inside of it.

-- name: mark
SAVEPOINT holdfast_block

-- name: unmark
RELEASE holdfast_block
