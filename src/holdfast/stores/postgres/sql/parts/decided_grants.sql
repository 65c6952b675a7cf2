(
    SELECT kind, object, role, privilege, "column"
    FROM jsonb_to_recordset(:decisions::text::jsonb -> 'grants')
        AS decided (kind text, object text, role text, privilege text, "column" text)
)
