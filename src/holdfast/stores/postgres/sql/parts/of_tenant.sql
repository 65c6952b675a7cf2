-- The job belongs to the tenant that the claim is for, if it is for one.
(:tenant::text IS NULL OR coalesce(tenant, 'default') = :tenant)
