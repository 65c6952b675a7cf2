"""Marks on the transactions of blocks.

A block's transaction is marked when it begins. Whoever finds no mark at its end knows that somebody
else has ended it, by a COMMIT or a ROLLBACK, and perhaps begun another.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from holdfast.stores.statements import include, load, read_sql
from holdfast.transactions.drivers.failures import unwrapped
from holdfast.transactions.drivers.protocol import (
    Driver,
    PostgresDriver,
    SqliteDriver,
    speaks_postgres,
    speaks_sqlite,
)
from holdfast.transactions.drivers.refusals import ended_inside, sees_one_moment

# An expression of PostgreSQL's: is this still the transaction that was marked?
IN_BLOCK = read_sql(__package__, "postgres", "in_block.sql").strip()

_POSTGRES = load(
    include(read_sql(__package__, "postgres", "marks.sql"), {"in_block": IN_BLOCK}), numbered=True
)
_SQLITE = load(read_sql(__package__, "sqlite", "marks.sql"), numbered=False)


async def mark(driver: PostgresDriver, how: str) -> None:
    """Mark the transaction, which has just begun. Refuse one that sees a single moment: when the
    job's lease is renewed meanwhile, it can't end the job. `how` says what to do instead."""
    try:
        (found,) = await driver.fetch(_POSTGRES["mark"].sql, ())
        if found["isolation"] != "read committed":
            raise sees_one_moment(found["isolation"], how)
    except BaseException:
        with suppress(Exception):
            await driver.rollback()
        raise


def mark_file(driver: SqliteDriver) -> None:
    driver.execute(_SQLITE["mark"].sql)


async def check_mark(driver: Driver) -> None:
    """Refuse a transaction that is not the one which was marked."""
    if speaks_postgres(driver):
        (found,) = await driver.fetch(_POSTGRES["is_marked"].sql, ())
        if not found["is_marked"]:
            raise ended_inside()
    elif speaks_sqlite(driver):
        check_file_mark(driver)


def check_file_mark(driver: SqliteDriver) -> None:
    try:
        driver.execute(_SQLITE["unmark"].sql)
    except Exception as error:
        if not isinstance(unwrapped(error), sqlite3.OperationalError):
            raise
        raise ended_inside() from error
