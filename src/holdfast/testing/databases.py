"""Private databases for sandboxes: an SQLite file, or a database on a PostgreSQL server."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from holdfast.app import Holdfast
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Lease
from holdfast.domain.secrets import shown_url
from holdfast.runtime.seam import Seam
from holdfast.stores.registry import plain_url
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.testing.virtual_time import VirtualTime

PREFIX = "holdfast_sandbox_"
_INSUFFICIENT_PRIVILEGE = "42501"


class Database(Protocol):
    @property
    def url(self) -> str: ...

    @property
    def seam(self) -> Seam: ...

    async def advance(self, hf: Holdfast, seconds: float) -> None:
        """Let time pass. `hf` uses this database."""

    async def expire(self, hf: Holdfast, lease: Lease) -> None:
        """Let this lease expire, and no other."""


@asynccontextmanager
async def private_database(url: str | None) -> AsyncIterator[Database]:
    """Make an empty database, and remove it at the end."""
    if url is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            yield _SqliteFile(f"sqlite:///{Path(folder) / 'jobs.db'}")
        return
    server = plain_url(url)
    if urlsplit(server).scheme not in ("postgres", "postgresql"):
        raise ConfigurationError(
            f"a sandbox runs on an SQLite file of its own, or on a PostgreSQL server: pass no URL,"
            f" or postgresql://..., not {shown_url(url)}"
        )
    name = f"{PREFIX}{uuid4().hex}"
    # These statements take no parameters.
    await _execute(server, f"CREATE DATABASE {name}")
    try:
        yield _PostgresDatabase(urlsplit(server)._replace(path=f"/{name}").geturl())
    finally:
        await _execute(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class _SqliteFile:
    def __init__(self, url: str) -> None:
        self.url = url
        self.seam = VirtualTime()

    async def advance(self, hf: Holdfast, seconds: float) -> None:
        self.seam.advance(seconds)

    async def expire(self, hf: Holdfast, lease: Lease) -> None:
        await _expire(hf, "on_sqlite", {"id": str(lease.job_id), "fence": lease.fence})


class _ServerTime(Seam):
    starts_processes = False  # as with VirtualTime: a handler is watched where it runs


class _PostgresDatabase:
    def __init__(self, url: str) -> None:
        self.url = url
        self.seam = _ServerTime()

    async def advance(self, hf: Holdfast, seconds: float) -> None:
        statements = [*_ADVANCE.values()]
        for tables in hf._tables:
            statements += _advance_of(tables.package)
        async with hf.transaction() as connection:
            for statement in statements:
                values = {"passed": timedelta(seconds=seconds)}
                await connection.execute(statement.sql, *statement.arguments(values))

    async def expire(self, hf: Holdfast, lease: Lease) -> None:
        await _expire(hf, "on_postgres", {"id": lease.job_id, "fence": lease.fence})


async def _expire(hf: Holdfast, name: str, values: Mapping[str, object]) -> None:
    statement = _EXPIRE[name]
    async with hf.transaction() as connection:
        await connection.execute(statement.sql, *statement.arguments(values))


_EXPIRE = load(read_sql(__package__, "expire.sql"), numbered=True)
_ADVANCE = load(read_sql(__package__, "advance.sql"), numbered=True)


def _advance_of(package: str) -> list[Statement]:
    """The statements that move an application's times, if there are any."""
    file = files(package).joinpath("sql", "postgres", "testing", "advance.sql")
    if not file.is_file():
        return []
    return [*load(file.read_text(encoding="utf-8"), numbered=True).values()]


async def _execute(url: str, sql: str) -> None:
    from holdfast.stores.postgres import PostgresStore

    store = PostgresStore(url, Seam())
    try:
        async with store.connection() as connection:
            await connection.execute(sql)
    except Exception as error:
        if _sqlstate(error) != _INSUFFICIENT_PRIVILEGE:
            raise
        raise ConfigurationError(
            f"a sandbox makes a database of its own on the server of {shown_url(url)}, but the role"
            " in this URL may not do that; as an administrator, run: ALTER ROLE ... CREATEDB"
        ) from error
    finally:
        await store.close()


def _sqlstate(error: Any) -> str | None:
    return getattr(error, "sqlstate", None)
