"""The schema's version. Opening the store checks it, and `holdfast migrate` upgrades it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.domain.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from holdfast.stores.migrations import steps
from holdfast.stores.postgres import roles
from holdfast.stores.postgres.failures import sqlstate
from holdfast.stores.postgres.rows import SQL, fetch_on

LOCK_TRIES: Final = 20
LOCK_REST_SECONDS: Final = 2.0  # others work meanwhile
_LOCK_NOT_AVAILABLE: Final = "55P03"
ENCODING = "UTF8"
CREATE_DATABASE = "CREATE DATABASE jobs ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;"


async def check(connection: Any, address: str) -> None:
    """Accept this code's version, and the next one: old workers keep running after a migration."""
    _check_encoding(connection, address)
    ours = steps("postgres")[-1].version
    theirs = await version_of(connection)
    if theirs in (ours, ours + 1):
        return
    if theirs == 0:
        raise SchemaMismatch(f"the database {address} is empty; run: holdfast migrate")
    if theirs < ours:
        raise SchemaMismatch(
            f"the database {address} has schema version {theirs}, but this code needs {ours};"
            " run: holdfast migrate"
        )
    raise SchemaMismatch(
        f"the database {address} has schema version {theirs}, but this code supports at most"
        f" {ours + 1}; upgrade holdfast"
    )


async def migrate(connection: Any, address: str) -> list[str]:
    """A step that waits for the lock of a table keeps everybody else waiting: so it gives up after
    two seconds, and all steps are tried again."""
    _check_encoding(connection, address)
    for _ in range(LOCK_TRIES):
        try:
            return await _migrate(connection)
        except Exception as error:
            if sqlstate(error) != _LOCK_NOT_AVAILABLE:
                raise
        await asyncio.sleep(LOCK_REST_SECONDS)
    raise StoreUnavailable(
        f"another transaction keeps tables of the database {address} locked, a dump for example;"
        " nothing was changed. When it has ended, run again: holdfast migrate"
    )


async def _migrate(connection: Any) -> list[str]:
    async with connection.transaction():
        # A migration may take long. A client that hangs is still cut off while idle.
        await connection.execute("SET LOCAL statement_timeout = 0")
        return await roles.migrate_as_owner(connection, {}, lambda: _take_steps(connection))


async def _take_steps(connection: Any) -> list[str]:
    # Other migrations are waited for without a limit.
    await connection.execute("SET LOCAL lock_timeout = '2s'")
    version = await version_of(connection)
    missing = [step for step in steps("postgres") if step.version > version]
    for step in missing:
        await connection.execute(step.sql)
        await fetch_on(connection, "applied", version=step.version, name=step.name)
    return [f"{step.version:04d}_{step.name}" for step in missing]


def _check_encoding(connection: Any, address: str) -> None:
    """Refuse a database that can't store all text: a result could fail a job that succeeded. The
    server reports its encoding at connect."""
    encoding = getattr(connection.get_settings(), "server_encoding", ENCODING)
    if encoding != ENCODING:
        raise ConfigurationError(
            f"the database {address} has the encoding {encoding}, which can't store all text;"
            f" create a UTF-8 database: {CREATE_DATABASE}"
        )


async def version_of(connection: Any) -> int:
    versions = await connection.fetchrow(SQL["versions_exist"].sql)
    if not versions["exist"]:
        return 0
    statement = SQL["version" if versions["readable"] else "call_version"]
    version: int = await connection.fetchval(statement.sql)
    return version
