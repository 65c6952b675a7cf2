(
    SELECT name, definer
    FROM jsonb_to_recordset(:decisions::text::jsonb -> 'functions')
        AS decided (name text, definer boolean)
)
