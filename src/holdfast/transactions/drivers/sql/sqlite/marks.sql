-- A savepoint ends with its transaction, and the caller's savepoints are inside it.

-- name: mark
SAVEPOINT holdfast_block

-- name: unmark
RELEASE holdfast_block
