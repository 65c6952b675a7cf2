"""The schema's version. Opening a file migrates it."""

from __future__ import annotations

import sqlite3

from holdfast.domain.errors import SchemaMismatch
from holdfast.stores.migrations import Step, split, steps
from holdfast.stores.sqlite.rows import SQL


def migrate(connection: sqlite3.Connection, path: str, now: int) -> list[str]:
    newest = steps("sqlite")[-1].version
    if _version(connection, path, newest) >= newest:
        return []
    connection.execute("BEGIN EXCLUSIVE")
    try:
        # Another process may have migrated the file while this one waited for the lock.
        version = _version(connection, path, newest)
        connection.execute(SQL["create_versions"].sql)
        missing = [step for step in steps("sqlite") if step.version > version]
        for step in missing:
            _apply(connection, step, now)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [f"{step.version:04}_{step.name}" for step in missing]


def check(connection: sqlite3.Connection, path: str) -> None:
    """Accept this code's version, and the next one, without migrating."""
    newest = steps("sqlite")[-1].version
    version = _version(connection, path, newest)
    if version == 0:
        raise SchemaMismatch(f"the database {path} is empty; run: holdfast migrate")
    if version < newest:
        raise SchemaMismatch(
            f"the schema of {path} has version {version}, but this code needs {newest}; run:"
            " holdfast migrate"
        )


def version_of(connection: sqlite3.Connection) -> int:
    if not connection.execute(SQL["versions_exist"].sql).fetchone()[0]:
        return 0
    version: int = connection.execute(SQL["version"].sql).fetchone()[0]
    return version


def _version(connection: sqlite3.Connection, path: str, newest: int) -> int:
    version = version_of(connection)
    if version > newest + 1:
        raise SchemaMismatch(
            f"the schema of {path} has version {version}, but this code supports at most"
            f" {newest + 1}; upgrade holdfast"
        )
    return version


def _apply(connection: sqlite3.Connection, step: Step, now: int) -> None:
    for statement in split(step.sql):
        connection.execute(statement)
    applied = {"version": step.version, "name": step.name, "applied_at": now}
    connection.execute(SQL["applied"].sql, applied)
