-- For connections of any driver: a job as JSON, because each reads other types in its own way.

-- name: get_json
SELECT to_json(found)::text AS job FROM ({get}) AS found
