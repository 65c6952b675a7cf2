"""What a run breaks: a database, the way to it, and the processes that work on it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import asyncpg

from chaos.app import CAP, CAPPED, DOWN
from chaos.disk import Disk
from chaos.ledger import FOLDER, Ledger
from chaos.network import Network
from holdfast import Holdfast
from tests.support.bouncer import Bouncer, bouncer_program
from tests.support.clocks import Clock, faked_time_library
from tests.support.postgres import Server, start_all, system_binaries
from tests.support.processes import Process

T = TypeVar("T")

LEASE_SECONDS = 3.0
SETTINGS = {
    "lease_seconds": LEASE_SECONDS,
    "grace_seconds": 5,
    "timeout_grace_seconds": 1,
}
CONCURRENCY = 20
CLIENTS = 2
SEARCH_PATH = "public, holdfast"  # the tables of these jobs, then the engine's
TABLES = ("CREATE TABLE payments (job TEXT, fence BIGINT)", "CREATE TABLE orders (request TEXT)")


@dataclass
class Role:
    """A place that is filled again when the process in it has ended."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    process: Process | None = None
    ends: list[int] = field(default_factory=list)
    started: int = 0


class Site:
    """One database with its workers and a client. `heal` undoes all that faults may have left."""

    kind: str

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.ledger = Ledger(folder)
        self.workers: list[Role] = []
        self.clients: list[Role] = []
        self.frozen: set[int] = set()
        self.staffed = True

    @property
    def url(self) -> str:
        """The database's own address, around all that is broken on the way."""
        raise NotImplementedError

    async def open(self) -> None:
        raise NotImplementedError

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    async def _prepare(self) -> None:
        async with Holdfast(self.url) as hf:
            await hf.queues.cap(CAPPED, CAP)
        for sql in TABLES:
            await self.execute(sql)

    def _employ(self, name: str, url: str, *options: str, **environment: str) -> None:
        command = ["-m", "holdfast.cli.main", "worker", "chaos.app:hf", "--log-format=json"]
        command += [f"--concurrency={CONCURRENCY}", *options]
        self.workers.append(Role(name, command, self._environment(url) | environment))

    def _invite(self, name: str, url: str) -> None:
        command = ["-m", "chaos.client", str(self.random.getrandbits(32))]
        self.clients.append(Role(name, command, self._environment(url)))

    def _environment(self, url: str) -> dict[str, str]:
        settings = {f"HOLDFAST_{name.upper()}": str(value) for name, value in SETTINGS.items()}
        return settings | {"HOLDFAST_DATABASE_URL": url, FOLDER: str(self.folder)}

    def staff(self) -> None:
        """Start what has ended, or never began."""
        for role in [*self.workers, *self.clients]:
            if role.process is not None and (code := role.process.code) is not None:
                role.ends.append(code)
                role.process = None
            if role.process is None and self.staffed:
                role.started += 1
                name = f"{role.name}-{role.started}"
                role.process = Process(name, role.command, self.folder, role.environment)

    async def revive(self) -> None:
        """Restart the services that the workers need, if they have ended."""

    def dismiss_clients(self) -> None:
        """Kill them where they stand."""
        for role in self.clients:
            if role.process is not None:
                role.process.kill()
        self.clients.clear()

    def trees(self, roles: Sequence[Role]) -> list[list[int]]:
        """The processes of each: the one that was started, then those that it started."""
        alive = [role.process.pid for role in roles if role.process and role.process.code is None]
        return [[pid, *descendants(pid)] for pid in alive]

    def note(self, text: str) -> None:
        """Record a fault, with both clocks: the ledger's and the logs'."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with (self.folder / "faults").open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic():.3f} {now} {text}\n")

    def freeze(self, pids: Sequence[int]) -> None:
        for pid in pids:
            self.frozen.add(pid)
            send(pid, signal.SIGSTOP)

    def thaw(self, pids: Sequence[int]) -> None:
        for pid in pids:
            send(pid, signal.SIGCONT)
            self.frozen.discard(pid)

    async def is_writable(self) -> bool:
        """Is the database unlocked?"""
        return True

    @property
    def switch(self) -> Path:
        """A file: while it is there, what jobs depend on is down."""
        return self.folder / DOWN

    def heal(self) -> None:
        self.thaw(list(self.frozen))
        self.switch.unlink(missing_ok=True)

    async def close(self) -> None:
        """End everything that was started here."""
        self.heal()
        for tree in self.trees([*self.workers, *self.clients]):
            for pid in tree:
                send(pid, signal.SIGKILL)
        for role in [*self.workers, *self.clients]:
            if role.process is not None:
                role.process.kill()


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """What it started, from any of its threads, and what those started."""
    children: list[int] = []
    # It may end, as may any of its threads, while we look.
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):
                children += map(int, thread.read_text(encoding="ascii").split())
    return [each for child in children for each in [child, *descendants(child)]]


class SqliteSite(Site):
    kind = "sqlite"

    def __init__(self, folder: Path, random: Random) -> None:
        super().__init__(folder, random)
        self.disk = Disk(folder / "disk")
        self.path = self.disk.folder / "jobs.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    async def open(self) -> None:
        await self._prepare()
        self._employ("pair", self.url, "--processes=2")
        self._employ("single", self.url)
        for number in range(CLIENTS):
            self._invite(f"client-{number}", self.url)

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._execute, sql)

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return connection.execute(sql).fetchall()

    async def is_writable(self) -> bool:
        return await asyncio.to_thread(self._is_writable)

    def _is_writable(self) -> bool:
        with closing(sqlite3.connect(self.path, timeout=0.3, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    def heal(self) -> None:
        super().heal()
        if self.disk.can_be_full:
            self.disk.make_room()

    async def close(self) -> None:
        await super().close()
        self.disk.remove()


class PostgresSite(Site):
    """One worker and the client have a straight way, the other worker goes through a PgBouncer; a
    third one, on demand, has a clock that can be set."""

    kind = "postgresql"

    def __init__(self, folder: Path, random: Random, *, clocks: bool) -> None:
        super().__init__(folder, random)
        self._wants_clocks = clocks
        # Servers end with the thread that started them, so it is one that stays.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="server")
        self.server: Server | None = None
        self.bouncer: Bouncer | None = None
        self.clock: Clock | None = None
        self.network: Network | None = None
        self.pooled: Network | None = None

    @property
    def networks(self) -> list[Network]:
        return [each for each in (self.network, self.pooled) if each is not None]

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url("postgres")

    async def blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Let the servers' thread do this."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def open(self) -> None:
        binaries = system_binaries()
        if binaries is None:
            raise SystemExit("PostgreSQL is not installed; use --store sqlite to skip it")
        self.server = Server("chaos", binaries, durable=True)
        await self.blocking(start_all, [self.server])
        await Holdfast(self.url).migrate()
        await self._prepare()
        self.network = Network(self.server.port)
        self.network.__enter__()
        self._employ("pair", self.network.url("postgres"), "--processes=2")
        for number in range(CLIENTS):
            self._invite(f"client-{number}", self.network.url("postgres"))
        await self._open_pooled()
        if self._wants_clocks and faked_time_library() is not None:
            self.clock = Clock(self.folder)
            self._employ("clocked", self.network.url("postgres"), **self.clock.environment)

    async def _open_pooled(self) -> None:
        assert self.network is not None
        program = bouncer_program()
        if program is None:
            self._employ("single", self.network.url("postgres"))
            return
        self.bouncer = Bouncer(program, self.network)
        await self.blocking(self.bouncer.start)
        self.pooled = Network(self.bouncer.port)
        self.pooled.__enter__()
        self._employ("pooled", self.pooled.url("postgres"))

    async def revive(self) -> None:
        if self.bouncer is not None and not self.bouncer.is_running:
            await self.blocking(self._revive, self.bouncer)

    def _revive(self, bouncer: Bouncer) -> None:
        if not bouncer.is_running:  # on the servers' thread, nothing else restarts it
            self.note(f"the pooler has ended by itself: {bouncer.log[-10:]}")
            bouncer.restart()

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url, server_settings={"search_path": SEARCH_PATH})
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    def heal(self) -> None:
        super().heal()
        for network in self.networks:
            network.heal()
        if self.clock is not None:
            self.clock.set("+0")

    async def close(self) -> None:
        await super().close()
        for network in self.networks:
            network.__exit__(None, None, None)
        for service in (self.bouncer, self.server):
            if service is not None:
                await self.blocking(service.remove)
        self._thread.shutdown()
