"""Where a run happens: a durable PostgreSQL, other services if they are asked for, and folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from bench.machine import cpu_seconds
from tests.support.postgres import Databases, Server, start_all, system_binaries

# As an installed server has them; only the connections are more, for many workers at once.
SETTINGS = {"shared_buffers": "128MB", "autovacuum_naptime": "1min", "max_connections": "1500"}
SHOWN = (
    "server_version",
    "shared_buffers",
    "max_wal_size",
    "synchronous_commit",
    "fsync",
    "autovacuum_naptime",
    "max_connections",
)
WRITTEN = """
SELECT
    (pg_current_wal_lsn() - '0/0')::bigint AS wal_bytes,
    (
        SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()
    ) AS commits,
    (
        SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables
    ) AS dead_tuples
"""
DEAD_TUPLES = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"
SIZES = """
SELECT pg_table_size('holdfast.jobs') AS rows, pg_indexes_size('holdfast.jobs') AS indexes
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What a database has written: every updated or deleted row leaves a dead tuple behind."""

    wal_bytes: int = 0
    commits: int = 0
    dead_tuples: int = 0

    def __sub__(self, before: Written) -> Written:
        return Written(
            self.wal_bytes - before.wal_bytes,
            self.commits - before.commits,
            self.dead_tuples - before.dead_tuples,
        )


@dataclass
class Place:
    """`address` is PostgreSQL's, without a database; `addresses` are those of other services."""

    disk: Path
    memory: Path
    address: str = ""
    server_pid: int = 0
    addresses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._databases = Databases(self.address, f"bench_{os.getpid()}")

    def database(self, service: str) -> tuple[str, Callable[[], None]]:
        """An empty database's address, and how to remove it."""
        if service == "postgresql":
            name = self._databases.create()
            return self._databases.url(name), lambda: self._databases.drop(name)
        if service == "sqlite":
            folder = Path(tempfile.mkdtemp(prefix="sqlite-", dir=self.disk))
            return f"sqlite:///{folder}/jobs.db", lambda: shutil.rmtree(folder)
        return "", lambda: None

    def written(self, url: str) -> Written:
        if not url.startswith("postgresql:"):
            return Written()
        row = self._databases.run(_fetch_row(url, WRITTEN))
        return Written(**row)

    def dead_tuples(self, url: str) -> int:
        return int(self._databases.run(_fetch_row(url, DEAD_TUPLES))["coalesce"])

    def sizes(self, url: str) -> dict[str, int]:
        """How many bytes the live jobs of Holdfast take, and their indexes."""
        return self._databases.run(_fetch_row(url, SIZES))

    def server_settings(self) -> dict[str, str]:
        if not self.address:
            return {}

        async def show() -> dict[str, str]:
            connection = await asyncpg.connect(self._databases.url("postgres"))
            try:
                return {name: await connection.fetchval(f"SHOW {name}") for name in SHOWN}
            finally:
                await connection.close()

        return self._databases.run(show())

    def server_cpu_seconds(self) -> float:
        return cpu_seconds(self.server_pid) if self.server_pid else 0.0

    @contextmanager
    def held_open(self, url: str) -> Iterator[None]:
        """Keep a snapshot open, so that rows that die can't be vacuumed."""
        connection = self._databases.run(asyncpg.connect(url))
        try:
            self._databases.run(connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
            self._databases.run(connection.fetch("SELECT txid_current()"))
            yield
        finally:
            self._databases.run(connection.close())

    def close(self) -> None:
        self._databases.close()


async def _fetch_row(url: str, sql: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        return dict(await connection.fetchrow(sql))
    finally:
        await connection.close()


@contextmanager
def made_place(*, with_postgres: bool, addresses: Mapping[str, str]) -> Iterator[Place]:
    """Folders and, if it is asked for and installed, a PostgreSQL: all gone at the end."""
    binaries = system_binaries() if with_postgres else None
    server = Server("bench", binaries, durable=True, **SETTINGS) if binaries else None
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as disk,
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=memory) as counts,
    ):
        try:
            if server:
                start_all([server])
            place = Place(
                disk=Path(disk),
                memory=Path(counts),
                address=server.url("") if server else "",
                server_pid=server.pid if server else 0,
                addresses=addresses,
            )
            yield place
            place.close()
        finally:
            if server:
                server.remove()
