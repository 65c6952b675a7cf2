-- name: dialect
SELECT 'SQLite'
