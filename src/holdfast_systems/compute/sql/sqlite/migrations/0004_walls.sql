-- A hash is claimed before its job exists, so it says itself whose it is.
ALTER TABLE compute_hashes ADD COLUMN tenant_id TEXT NOT NULL DEFAULT 'default';
UPDATE compute_hashes SET tenant_id = (
    SELECT tenant_id FROM compute_jobs WHERE compute_jobs.id = compute_hashes.job_id
);
