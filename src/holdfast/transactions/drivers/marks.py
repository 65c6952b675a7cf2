"""Mark the transaction of a block when it begins.

If the mark is gone at the end, a COMMIT or ROLLBACK inside the block ended the transaction, and
another one may have begun.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.stores.statements import include, load, read_sql
from holdfast.transactions.drivers.failures import unwrapped
from holdfast.transactions.drivers.protocol import Driver, speaks_postgres, speaks_sqlite
from holdfast.transactions.drivers.refusals import ended_inside, has_snapshot

# A PostgreSQL expression: is this still the marked transaction?
IN_BLOCK = read_sql(__package__, "postgres", "in_block.sql").strip()

_POSTGRES = load(
    include(read_sql(__package__, "postgres", "marks.sql"), {"in_block": IN_BLOCK}), numbered=True
)
_SQLITE = load(read_sql(__package__, "sqlite", "marks.sql"), numbered=False)


async def mark(driver: Driver, how: str = "") -> None:
    """Mark a transaction that has just begun. Reject one with a snapshot: once the job's lease is
    renewed, it can't end the job. `how` says what to do instead."""
    if speaks_sqlite(driver):
        driver.execute(_SQLITE["mark"].sql)
    elif speaks_postgres(driver):
        try:
            (found,) = await driver.fetch(_POSTGRES["mark"].sql, ())
            if found["isolation"] != "read committed":
                raise has_snapshot(found["isolation"], how)
        except BaseException:
            with suppress(Exception):
                await driver.rollback()
            raise


async def check_mark(driver: Driver) -> None:
    """Reject a transaction that is not the marked one."""
    if speaks_postgres(driver):
        (found,) = await driver.fetch(_POSTGRES["is_marked"].sql, ())
        if not found["is_marked"]:
            raise ended_inside()
    elif speaks_sqlite(driver):
        import sqlite3  # which PostgreSQL does not need

        try:
            driver.execute(_SQLITE["unmark"].sql)
        except Exception as error:
            if not isinstance(unwrapped(error), sqlite3.OperationalError):
                raise
            raise ended_inside() from error
