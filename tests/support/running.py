"""Workers inside a test: started and stopped in its event loop, and awaited by signals."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Final

import asyncpg

from holdfast import Holdfast, WorkerReport
from holdfast.observability.logs import Event
from tests.support.processes import WAIT_SECONDS, turn

WAIT_SECONDS_MAX: Final = WAIT_SECONDS
QUICK: Final[dict[str, Any]] = {
    "poll_seconds": 0.05,
    "grace_seconds": 0.0,
    "sqlite_synchronous": "NORMAL",
}


@asynccontextmanager
async def working(hf: Holdfast, **options: Any) -> AsyncIterator[asyncio.Task[WorkerReport]]:
    """Run a worker until the end of the block; raise the error that ends it before."""
    worker = asyncio.create_task(hf.run_worker(**options))
    try:
        yield worker
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker


async def signal(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await event.wait()


class Seen(logging.Handler):
    """Logged events, and a way to wait for one."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self.events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Event):
            self.events.append(record.msg)
            self._loop.call_soon_threadsafe(self._more.set)

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    async def first(self, name: str, count: int = 1) -> Event:
        """Wait until the event was logged this many times; return the first one."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(self.named(name)) < count:
                self._more.clear()
                await self._more.wait()
        return self.named(name)[0]


@asynccontextmanager
async def seen_events() -> AsyncIterator[Seen]:
    logger = logging.getLogger("holdfast")
    level, handler = logger.level, Seen()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Company:
    """Counts the jobs that run at the same time in one process."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.seen: list[tuple[str, int]] = []

    async def stay(self, kind: str, steps: int) -> None:
        self.inside[kind] += 1
        for _ in range(steps):
            await turn()
            self.seen.append((kind, self.inside.total()))
        self.inside[kind] -= 1

    def most(self, kind: str) -> int:
        return max(count for each, count in self.seen if each == kind)


def _execute_in_file(path: str, sql: str) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as file, file:
        file.execute(sql)


async def execute(url: str, sql: str) -> None:
    """Change the database behind the engine's back. Both stores have the same tables."""
    if url.startswith("sqlite:///"):
        # Not on the event loop: a transaction there may have to end first.
        await asyncio.to_thread(_execute_in_file, url.removeprefix("sqlite:///"), sql)
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():  # what a pooler keeps together
            await connection.execute("SET LOCAL search_path = holdfast")
            await connection.execute(sql)
    finally:
        await connection.close()


async def let_leases_run_out(url: str) -> None:
    """Expire all leases at once, so that leases can be long and no test has to wait for them."""
    await execute(url, "UPDATE jobs SET lease_expires_at = run_at WHERE state = 'running'")


async def see_one_moment_by_default(url: str) -> None:
    """Make REPEATABLE READ the default of this PostgreSQL database."""
    name = url.rpartition("/")[2]
    level = "SET default_transaction_isolation = 'repeatable read'"
    await execute(url, f'ALTER DATABASE "{name}" {level}')
