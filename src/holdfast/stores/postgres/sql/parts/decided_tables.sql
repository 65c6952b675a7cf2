(
    SELECT name, tenant, rows, tenant IS NOT NULL OR rows::text <> '{}' AS has_policies
    FROM jsonb_to_recordset(:decisions::text::jsonb -> 'tables')
        AS decided (name text, tenant text, rows jsonb)
)
