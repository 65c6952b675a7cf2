-- A document's version never changes. It is only removed if nothing was made of it.
CREATE FUNCTION holdfast.passport_check_unused() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.passport_snapshot_documents
        WHERE tenant = old.tenant AND document_version_id = old.id
    ) OR EXISTS (
        SELECT FROM holdfast.passport_fact_documents
        WHERE tenant = old.tenant AND document_version_id = old.id
    ) THEN
        RAISE EXCEPTION 'a document version in use is never removed'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN old;
END
$$;
REVOKE EXECUTE ON FUNCTION holdfast.passport_check_unused() FROM PUBLIC;

CREATE TRIGGER passport_documents_stay BEFORE UPDATE ON holdfast.passport_document_versions
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_refuse('a document version never changes');

CREATE TRIGGER passport_documents_remain BEFORE DELETE ON holdfast.passport_document_versions
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_check_unused();

CREATE TRIGGER passport_fact_documents_stay
BEFORE UPDATE OR DELETE ON holdfast.passport_fact_documents
FOR EACH ROW EXECUTE FUNCTION holdfast.passport_refuse('the origin of a fact never changes');

-- A snapshot that was never sealed is removed with what is in it, except for documents in use.
CREATE FUNCTION holdfast.passport_remove_snapshot(of_tenant text, snapshot uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    documents uuid[];
BEGIN
    PERFORM FROM holdfast.passport_snapshots
    WHERE tenant = of_tenant AND id = snapshot AND status = 'OPEN'
        AND tenant = coalesce(nullif(current_setting('holdfast.tenant', true), ''), tenant)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM holdfast.passport_snapshot_facts
    WHERE tenant = of_tenant AND snapshot_id = snapshot;
    WITH removed AS (
        DELETE FROM holdfast.passport_snapshot_documents
        WHERE tenant = of_tenant AND snapshot_id = snapshot
        RETURNING document_version_id
    )
    SELECT array_agg(document_version_id) INTO documents FROM removed;
    DELETE FROM holdfast.passport_snapshots WHERE tenant = of_tenant AND id = snapshot;
    DELETE FROM holdfast.passport_document_versions AS document
    WHERE tenant = of_tenant AND id = ANY (documents)
        AND NOT EXISTS (
            SELECT FROM holdfast.passport_snapshot_documents AS other
            WHERE other.tenant = of_tenant AND other.document_version_id = document.id
        )
        AND NOT EXISTS (
            SELECT FROM holdfast.passport_fact_documents AS origin
            WHERE origin.tenant = of_tenant AND origin.document_version_id = document.id
        );
    RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION holdfast.passport_remove_snapshot(text, uuid) FROM PUBLIC;

-- TRUNCATE fires no triggers for rows.
CREATE TRIGGER passport_document_versions_kept
BEFORE TRUNCATE ON holdfast.passport_document_versions
EXECUTE FUNCTION holdfast.passport_refuse('passport_document_versions is never truncated');
CREATE TRIGGER passport_facts_kept BEFORE TRUNCATE ON holdfast.passport_facts
EXECUTE FUNCTION holdfast.passport_refuse('passport_facts is never truncated');
CREATE TRIGGER passport_fact_documents_kept BEFORE TRUNCATE ON holdfast.passport_fact_documents
EXECUTE FUNCTION holdfast.passport_refuse('passport_fact_documents is never truncated');
CREATE TRIGGER passport_snapshots_kept BEFORE TRUNCATE ON holdfast.passport_snapshots
EXECUTE FUNCTION holdfast.passport_refuse('passport_snapshots is never truncated');
CREATE TRIGGER passport_snapshot_documents_kept
BEFORE TRUNCATE ON holdfast.passport_snapshot_documents
EXECUTE FUNCTION holdfast.passport_refuse('passport_snapshot_documents is never truncated');
CREATE TRIGGER passport_snapshot_facts_kept BEFORE TRUNCATE ON holdfast.passport_snapshot_facts
EXECUTE FUNCTION holdfast.passport_refuse('passport_snapshot_facts is never truncated');
CREATE TRIGGER passport_rules_kept BEFORE TRUNCATE ON holdfast.passport_rules
EXECUTE FUNCTION holdfast.passport_refuse('passport_rules is never truncated');
CREATE TRIGGER passport_versions_kept BEFORE TRUNCATE ON holdfast.passport_versions
EXECUTE FUNCTION holdfast.passport_refuse('passport_versions is never truncated');
CREATE TRIGGER passport_audit_events_kept BEFORE TRUNCATE ON holdfast.passport_audit_events
EXECUTE FUNCTION holdfast.passport_refuse('passport_audit_events is never truncated');

-- The public key of a signature, so that files can show it where no signing keys are.
ALTER TABLE holdfast.passport_versions
    ADD COLUMN public_key bytea CHECK (length(public_key) = 32);

DROP TRIGGER passport_versions_stay ON holdfast.passport_versions;
CREATE TRIGGER passport_versions_stay BEFORE UPDATE ON holdfast.passport_versions
FOR EACH ROW WHEN (
    (old.id, old.tenant, old.passport_id, old.snapshot_id, old.rules_id, old.build_id,
     old.issued_at, old.payload, old.payload_hash, old.proof_root, old.receipt, old.receipt_hash,
     old.created_at)
    IS DISTINCT FROM
    (new.id, new.tenant, new.passport_id, new.snapshot_id, new.rules_id, new.build_id,
     new.issued_at, new.payload, new.payload_hash, new.proof_root, new.receipt, new.receipt_hash,
     new.created_at)
    OR (
        old.signature IS NOT NULL
        AND (old.signature, old.key_id, old.public_key, old.signed_at)
        IS DISTINCT FROM (new.signature, new.key_id, new.public_key, new.signed_at)
    )
    OR (
        old.qr_png IS NOT NULL
        AND (old.qr_text, old.qr_png) IS DISTINCT FROM (new.qr_text, new.qr_png)
    )
)
EXECUTE FUNCTION holdfast.passport_refuse('a passport version never changes');

CREATE INDEX passport_versions_newest ON holdfast.passport_versions (tenant, created_at, id);
CREATE INDEX passport_snapshots_newest ON holdfast.passport_snapshots (tenant, created_at, id);
CREATE INDEX passport_versions_of_passport
    ON holdfast.passport_versions (tenant, passport_id, created_at, id);
CREATE INDEX passport_rules_newest ON holdfast.passport_rules (tenant, created_at, id);
CREATE INDEX passport_snapshots_open ON holdfast.passport_snapshots (created_at)
    WHERE status = 'OPEN';
CREATE INDEX passport_snapshot_documents_of_document
    ON holdfast.passport_snapshot_documents (tenant, document_version_id);
CREATE INDEX passport_fact_documents_of_document
    ON holdfast.passport_fact_documents (tenant, document_version_id);

-- The jobs in this system's terms. Only the first line of an error's text is shown: the others say
-- where in the code it was.
CREATE OR REPLACE VIEW holdfast.passport_jobs AS
SELECT
    id AS job_id,
    coalesce(tenant, 'default') AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    arguments -> 'payload' AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    run_at AS scheduled_at,
    lease_owner,
    lease_expires_at,
    started_at,
    finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_build_object(
        'code',
        CASE error_code
            WHEN 'BAD_ARGUMENTS' THEN 'VALIDATION_ERROR'
            WHEN 'StoreUnavailable' THEN 'DB_UNAVAILABLE'
            ELSE error_code
        END,
        'text', split_part(error_text, E'\n', 1)
    ) END AS last_error
FROM (
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        lease_owner, lease_expires_at, started_at, finished_at, error_code, error_text
    FROM holdfast.jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM holdfast.history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK',
    'VERIFY_PASSPORTS', 'EXPIRE_UPLOADS'
);

-- The deliveries of this system's events in its terms: one row each, with the last answer.
CREATE VIEW holdfast.webhook_deliveries AS
SELECT
    saga.id AS webhook_delivery_id,
    saga.tenant AS tenant_id,
    saga.subscription_id AS webhook_endpoint_id,
    saga.event_id,
    CASE saga.status
        WHEN 'Delivered' THEN 'DELIVERED'
        WHEN 'DeadLettered' THEN 'FAILED'
        WHEN 'Canceled' THEN 'FAILED'
        ELSE 'PENDING'
    END AS status,
    attempt.response_status AS http_status,
    answer.response_headers,
    answer.response_body,
    CASE WHEN saga.status = 'Delivered' THEN attempt.ended_at END AS delivered_at,
    CASE
        WHEN attempt.response_status IS NOT NULL AND attempt.error_code IS NOT NULL
            THEN 'WebhookNon2xx: the endpoint answered ' || attempt.response_status
        WHEN attempt.error_code = 'TIMEOUT'
            THEN 'WebhookTimeout: the endpoint did not answer in time'
        WHEN attempt.error_code IS NOT NULL
            THEN 'HttpException: ' || coalesce(answer.error_text, attempt.error_code)
        WHEN saga.status = 'Canceled' THEN 'canceled: the endpoint was disabled'
    END AS error_message,
    saga.created_at,
    CASE
        WHEN attempt.response_status IS NOT NULL AND attempt.error_code IS NOT NULL
            THEN 'WebhookNon2xx'
        WHEN attempt.error_code = 'TIMEOUT' THEN 'WebhookTimeout'
        WHEN attempt.error_code IS NOT NULL THEN 'HttpException'
    END AS error_code
FROM holdfast.webhook_sagas AS saga
JOIN holdfast.webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id
LEFT JOIN holdfast.webhook_attempts AS attempt ON attempt.id = (
    SELECT reported.id FROM holdfast.webhook_attempts AS reported
    WHERE reported.saga_id = saga.id AND reported.status <> 'Pending'
    ORDER BY reported.attempt_no DESC LIMIT 1
)
LEFT JOIN holdfast.webhook_attempt_log AS answer ON answer.attempt_id = attempt.id
WHERE event.aggregate_type = 'PassportVersion';

-- With the caller's privileges, which older versions don't support.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 150000 THEN
        ALTER VIEW holdfast.passport_jobs SET (security_invoker = true);
        ALTER VIEW holdfast.webhook_deliveries SET (security_invoker = true);
    END IF;
END
$$;
