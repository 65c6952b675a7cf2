-- name: find_development_pepper
SELECT pepper FROM holdfast.development_pepper

-- name: keep_development_pepper
INSERT INTO holdfast.development_pepper (pepper) VALUES (:pepper) ON CONFLICT DO NOTHING

-- name: may_read_development_pepper
SELECT has_table_privilege('holdfast.development_pepper', 'SELECT')
