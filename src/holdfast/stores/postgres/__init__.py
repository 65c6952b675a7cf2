"""Jobs in PostgreSQL, for any number of machines."""

from holdfast.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
