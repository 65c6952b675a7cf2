-- Callers may choose the ID of a snapshot, so another tenant's snapshot must not be in its way.
ALTER TABLE holdfast.passport_snapshot_documents
    DROP CONSTRAINT passport_snapshot_documents_tenant_snapshot_id_fkey;
ALTER TABLE holdfast.passport_snapshot_facts
    DROP CONSTRAINT passport_snapshot_facts_tenant_snapshot_id_fkey;
ALTER TABLE holdfast.passport_versions
    DROP CONSTRAINT passport_versions_tenant_snapshot_id_fkey;

ALTER TABLE holdfast.passport_snapshots
    DROP CONSTRAINT passport_snapshots_pkey,
    DROP CONSTRAINT passport_snapshots_tenant_id_key,
    ADD PRIMARY KEY (tenant, id);

ALTER TABLE holdfast.passport_snapshot_documents
    ADD FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id);
ALTER TABLE holdfast.passport_snapshot_facts
    ADD FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id);
ALTER TABLE holdfast.passport_versions
    ADD FOREIGN KEY (tenant, snapshot_id) REFERENCES holdfast.passport_snapshots (tenant, id);

CREATE OR REPLACE FUNCTION holdfast.passport_check_open() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record := CASE TG_OP WHEN 'INSERT' THEN new ELSE old END;
BEGIN
    -- Locked, so that nobody seals it at the same time.
    PERFORM FROM holdfast.passport_snapshots
    WHERE tenant = own.tenant AND id = own.snapshot_id AND status = 'OPEN' FOR SHARE;
    IF NOT FOUND OR (
        TG_OP = 'UPDATE' AND (new.tenant, new.snapshot_id) <> (old.tenant, old.snapshot_id)
    ) THEN
        RAISE EXCEPTION 'a sealed snapshot never changes, and rows stay in theirs'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN coalesce(new, old);
END
$$;

ALTER FUNCTION holdfast.passport_refuse() SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION holdfast.passport_refuse(), holdfast.passport_check_open() FROM PUBLIC;
