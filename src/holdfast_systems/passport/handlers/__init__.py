"""The five jobs. Each commits its result, its audit event and the next job in one transaction."""
