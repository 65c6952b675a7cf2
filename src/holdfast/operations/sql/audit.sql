-- name: insert_audit_entry
INSERT INTO holdfast.audit_log (
    id, at, actor, key_id, tenant, action, outcome, target, jobs, address, correlation_id, because
)
VALUES (
    :id, now(), :actor, :key_id, :tenant, :action, :outcome, :target, :jobs, :address,
    :correlation_id, :because
)

-- name: audit_log_newest_first
SELECT
    id, at, actor, key_id, tenant, action, outcome, target, jobs, address, correlation_id, because
FROM holdfast.audit_log
WHERE id > :after AND id < :before
    AND (CAST(:actor AS text) IS NULL OR actor = :actor)
    AND (CAST(:key_id AS text) IS NULL OR key_id = :key_id)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    AND (CAST(:action AS text) IS NULL OR action = :action)
    AND (CAST(:target AS text) IS NULL OR target = :target)
    AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
    AND at >= :since AND at < :until
ORDER BY id DESC
LIMIT :rows

-- name: audit_log_oldest_first
SELECT
    id, at, actor, key_id, tenant, action, outcome, target, jobs, address, correlation_id, because
FROM holdfast.audit_log
WHERE id > :after AND id < :before
    AND (CAST(:actor AS text) IS NULL OR actor = :actor)
    AND (CAST(:key_id AS text) IS NULL OR key_id = :key_id)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    AND (CAST(:action AS text) IS NULL OR action = :action)
    AND (CAST(:target AS text) IS NULL OR target = :target)
    AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
    AND at >= :since AND at < :until
ORDER BY id
LIMIT :rows
