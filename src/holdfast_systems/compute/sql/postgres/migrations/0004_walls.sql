-- A hash is claimed before its job exists, so it says itself whose it is.
ALTER TABLE holdfast.compute_hashes ADD COLUMN tenant_id text COLLATE "C";
UPDATE holdfast.compute_hashes AS hash SET tenant_id = job.tenant_id
FROM holdfast.compute_jobs AS job WHERE job.id = hash.job_id;
ALTER TABLE holdfast.compute_hashes ALTER COLUMN tenant_id SET NOT NULL;
