-- A job knows the job whose handler enqueued it, how often it failed with each error code that has
-- a limit, and which worker ended it. Workers of version 7 leave all three empty.
ALTER TABLE jobs ADD COLUMN parent_id TEXT;
ALTER TABLE jobs ADD COLUMN failures TEXT; -- counts by error code
ALTER TABLE history ADD COLUMN parent_id TEXT;
ALTER TABLE history ADD COLUMN worker TEXT; -- of the attempt that ended it
ALTER TABLE workers ADD COLUMN app_version TEXT NOT NULL DEFAULT ''; -- '' if it has none

CREATE INDEX history_parent ON history (parent_id, id) WHERE parent_id IS NOT NULL;

-- "No tenant" is the tenant `default` from now on. Its jobs have no tenant here, and its keys and
-- counts have '', as workers of version 7 write them: the index by tenant leaves them out.
UPDATE jobs SET tenant = NULL WHERE tenant = 'default' AND finished_at IS NULL;
UPDATE OR IGNORE idempotency_keys SET tenant = '' WHERE tenant = 'default';
