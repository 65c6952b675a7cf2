-- The job belongs to this tenant; NULL stands for any.
(:tenant::text IS NULL OR coalesce(tenant, 'default') = :tenant)
