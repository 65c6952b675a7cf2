"""The five jobs. Each commits its end, an audit event, its result and the next job in one
transaction; a failed attempt has its audit event, too."""
