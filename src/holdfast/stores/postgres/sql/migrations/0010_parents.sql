-- A job knows the job whose handler enqueued it, how often it failed with each error code that has
-- a limit, and which worker ended it. Workers of version 9 leave all three empty.
ALTER TABLE holdfast.jobs
    ADD COLUMN parent_id uuid,
    ADD COLUMN failures json; -- counts by error code
ALTER TABLE holdfast.history
    ADD COLUMN parent_id uuid,
    ADD COLUMN worker text COLLATE "C"; -- of the attempt that ended it
ALTER TABLE holdfast.workers
    ADD COLUMN app_version text NOT NULL DEFAULT ''; -- of the application; '' if it has none

CREATE INDEX jobs_parent ON holdfast.jobs (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX history_parent ON holdfast.history (parent_id, id) WHERE parent_id IS NOT NULL;

-- "No tenant" is the tenant `default` from now on. Its jobs have no tenant here, and its keys and
-- counts have '', as workers of version 9 write them: the indexes by tenant leave them out.
UPDATE holdfast.jobs SET tenant = NULL WHERE tenant = 'default' AND finished_at IS NULL;
UPDATE holdfast.idempotency_keys AS named SET tenant = ''
WHERE tenant = 'default' AND NOT EXISTS (
    SELECT FROM holdfast.idempotency_keys AS unnamed
    WHERE unnamed.tenant = '' AND unnamed.key = named.key
);
