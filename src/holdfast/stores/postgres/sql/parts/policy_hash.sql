md5(concat_ws(
    ' ', polcmd, polpermissive, polroles::regrole[]::text,
    pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)
))
