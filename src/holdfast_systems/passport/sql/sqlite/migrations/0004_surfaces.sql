-- A document's version never changes. It is only removed if nothing was made of it.
CREATE TRIGGER passport_documents_stay BEFORE UPDATE ON passport_document_versions
BEGIN SELECT RAISE(ABORT, 'a document version never changes'); END;

CREATE TRIGGER passport_documents_remain BEFORE DELETE ON passport_document_versions
WHEN EXISTS (
    SELECT 1 FROM passport_snapshot_documents
    WHERE tenant = old.tenant AND document_version_id = old.id
) OR EXISTS (
    SELECT 1 FROM passport_fact_documents
    WHERE tenant = old.tenant AND document_version_id = old.id
)
BEGIN SELECT RAISE(ABORT, 'a document version in use is never removed'); END;

CREATE TRIGGER passport_fact_documents_stay BEFORE UPDATE ON passport_fact_documents
BEGIN SELECT RAISE(ABORT, 'the origin of a fact never changes'); END;

CREATE TRIGGER passport_fact_documents_remain BEFORE DELETE ON passport_fact_documents
BEGIN SELECT RAISE(ABORT, 'the origin of a fact never changes'); END;

-- A snapshot that was never sealed is removed with what is in it, except for documents in use.
CREATE TRIGGER passport_snapshots_removed BEFORE DELETE ON passport_snapshots
WHEN old.status = 'OPEN'
BEGIN
    DELETE FROM passport_snapshot_facts WHERE tenant = old.tenant AND snapshot_id = old.id;
    DELETE FROM passport_snapshot_documents WHERE tenant = old.tenant AND snapshot_id = old.id;
END;

CREATE TRIGGER passport_uploads_removed AFTER DELETE ON passport_snapshot_documents
BEGIN
    DELETE FROM passport_document_versions
    WHERE tenant = old.tenant AND id = old.document_version_id
        AND NOT EXISTS (
            SELECT 1 FROM passport_snapshot_documents AS other
            WHERE other.tenant = old.tenant
                AND other.document_version_id = old.document_version_id
        )
        AND NOT EXISTS (
            SELECT 1 FROM passport_fact_documents AS origin
            WHERE origin.tenant = old.tenant
                AND origin.document_version_id = old.document_version_id
        );
END;

-- The public key of a signature, so that files can show it where no signing keys are.
ALTER TABLE passport_versions ADD COLUMN public_key BLOB CHECK (length(public_key) = 32);

DROP TRIGGER passport_versions_stay;
CREATE TRIGGER passport_versions_stay BEFORE UPDATE ON passport_versions
WHEN
    (old.id, old.tenant, old.passport_id, old.snapshot_id, old.rules_id, old.build_id,
     old.issued_at, old.payload, old.payload_hash, old.proof_root, old.receipt, old.receipt_hash,
     old.created_at)
    IS NOT
    (new.id, new.tenant, new.passport_id, new.snapshot_id, new.rules_id, new.build_id,
     new.issued_at, new.payload, new.payload_hash, new.proof_root, new.receipt, new.receipt_hash,
     new.created_at)
    OR (
        old.signature IS NOT NULL
        AND (old.signature, old.key_id, old.public_key, old.signed_at)
        IS NOT (new.signature, new.key_id, new.public_key, new.signed_at)
    )
    OR (
        old.qr_png IS NOT NULL
        AND (old.qr_text, old.qr_png) IS NOT (new.qr_text, new.qr_png)
    )
BEGIN SELECT RAISE(ABORT, 'a passport version never changes'); END;

CREATE INDEX passport_versions_newest ON passport_versions (tenant, created_at, id);
CREATE INDEX passport_snapshots_newest ON passport_snapshots (tenant, created_at, id);
CREATE INDEX passport_versions_of_passport
    ON passport_versions (tenant, passport_id, created_at, id);
CREATE INDEX passport_rules_newest ON passport_rules (tenant, created_at, id);
CREATE INDEX passport_snapshots_open ON passport_snapshots (created_at)
    WHERE status = 'OPEN';
CREATE INDEX passport_snapshot_documents_of_document
    ON passport_snapshot_documents (tenant, document_version_id);
CREATE INDEX passport_fact_documents_of_document
    ON passport_fact_documents (tenant, document_version_id);

-- The jobs in this system's terms. Only the first line of an error's text is shown: the others say
-- where in the code it was.
DROP VIEW passport_jobs;

CREATE VIEW passport_jobs AS
SELECT
    id AS job_id,
    coalesce(tenant, 'default') AS tenant_id,
    name AS type,
    CASE state WHEN 'dead' THEN 'DEAD_LETTER' ELSE upper(state) END AS status,
    json_extract(arguments, '$.payload') AS payload,
    attempt AS attempts,
    max_attempts,
    priority,
    strftime('%Y-%m-%dT%H:%M:%S', run_at / 1000000, 'unixepoch')
        || printf('.%06dZ', run_at % 1000000) AS scheduled_at,
    lease_owner,
    strftime('%Y-%m-%dT%H:%M:%S', lease_expires_at / 1000000, 'unixepoch')
        || printf('.%06dZ', lease_expires_at % 1000000) AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch')
        || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    CASE WHEN error_code IS NOT NULL THEN json_object(
        'code',
        CASE error_code
            WHEN 'BAD_ARGUMENTS' THEN 'VALIDATION_ERROR'
            WHEN 'StoreUnavailable' THEN 'DB_UNAVAILABLE'
            ELSE error_code
        END,
        'text', substr(error_text, 1, instr(error_text || char(10), char(10)) - 1)
    ) END AS last_error
FROM (
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        lease_owner, lease_expires_at, started_at, finished_at, error_code, error_text
    FROM jobs
    UNION ALL
    SELECT
        id, tenant, name, state, arguments, attempt, max_attempts, priority, run_at,
        NULL, NULL, started_at, finished_at, error_code, error_text
    FROM history
) AS job
WHERE name IN (
    'PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'DELIVER_WEBHOOK',
    'VERIFY_PASSPORTS', 'EXPIRE_UPLOADS'
);

-- The deliveries of this system's events in its terms: one row each, with the last answer.
CREATE VIEW webhook_deliveries AS
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
FROM webhook_sagas AS saga
JOIN webhook_events AS event ON event.tenant = saga.tenant AND event.id = saga.event_id
LEFT JOIN webhook_attempts AS attempt ON attempt.id = (
    SELECT reported.id FROM webhook_attempts AS reported
    WHERE reported.saga_id = saga.id AND reported.status <> 'Pending'
    ORDER BY reported.attempt_no DESC LIMIT 1
)
LEFT JOIN webhook_attempt_log AS answer ON answer.attempt_id = attempt.id
WHERE event.aggregate_type = 'PassportVersion';
