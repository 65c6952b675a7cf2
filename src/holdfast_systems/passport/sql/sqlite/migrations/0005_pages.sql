-- For the list of all tenants' versions, newest first.
CREATE INDEX passport_versions_of_all ON passport_versions (created_at, id);
