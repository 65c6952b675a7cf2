-- For the list of a tenant's requests, newest first.
CREATE INDEX compute_jobs_tenant ON compute_jobs (tenant_id, id);
