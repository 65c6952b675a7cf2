"""Whether the service is ready: the checks behind `/v1/health/ready`. Also ends requests when the
database is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from logging import INFO, WARNING
from typing import Any, Final, TypeVar

from holdfast.api.limits import DATABASE_SECONDS_MAX, READY_SECONDS_MAX
from holdfast.api.problems import unavailable
from holdfast.app import Holdfast
from holdfast.domain.errors import SchemaMismatch
from holdfast.domain.scope import all_tenants
from holdfast.observability import logs
from holdfast.stores.protocol import Store
from holdfast.wakeups.status import with_fallback

T = TypeVar("T")
Check = Callable[[], Awaitable[object]]

MESSENGERS: Final = "messengers"
LOOK_SECONDS: Final = 1.0
_SILENT: Final = "the database did not answer in time"


class Health:
    """Checks by name. A check fails if it raises, returns False or takes too long. Its error is
    logged, never shown to callers. All requests within a second share one run.

    The database is asked on a separate connection, so that a full pool doesn't look like an outage.
    """

    def __init__(self, hf: Holdfast, stopping: asyncio.Event) -> None:
        self._hf = hf
        self._stopping = stopping
        self._store: Store | None = None
        self._checks: dict[str, Check] = {"database": self._ask_database}
        if hf.settings.messengers_required:
            self._checks[MESSENGERS] = self._ask_messengers
        self._looking: asyncio.Task[list[str]] | None = None
        self._looked_at = 0.0
        self._failed: dict[str, str | None] = {}  # by check: how it failed last time
        self._requests: dict[asyncio.Timeout, float] = {}  # and when they began
        self._database_is_down = False

    def add(self, name: str, check: Check) -> None:
        """Add a check: the service is ready only if it returns something other than False."""
        self._checks[name] = check

    async def failing(self) -> list[str]:
        """The names of the checks that fail."""
        if self._stopping.is_set():
            return ["stopping"]
        loop = asyncio.get_running_loop()
        if self._looking is None or (
            self._looking.done() and loop.time() >= self._looked_at + LOOK_SECONDS
        ):
            self._looked_at = loop.time()
            with all_tenants():
                self._looking = loop.create_task(self._look())
        return await asyncio.shield(self._looking)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            tasks = {watching} if self._looking is None else {watching, self._looking}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._store is not None:
                await self._store.close()

    async def bounded(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; end it with a problem if it takes long and the database doesn't answer.

        A request may take long for good reasons. Only a silent database ends it.
        """
        if self._database_is_down:
            work.close()
            raise unavailable(_SILENT)
        limit = asyncio.timeout(None)
        self._requests[limit] = asyncio.get_running_loop().time()
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise unavailable(_SILENT) from None
            raise
        finally:
            del self._requests[limit]

    async def _look(self) -> list[str]:
        failed = await asyncio.gather(*[self._run(*check) for check in self._checks.items()])
        return [name for name in failed if name is not None]

    async def _run(self, name: str, check: Check) -> str | None:
        """Run a check; return its name if it fails."""
        failed, trouble = None, "failed"
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                if await check() is False:
                    failed = name
        except SchemaMismatch as error:
            failed, trouble = "schema", str(error)
        except Exception as error:
            failed, trouble = name, str(error) or type(error).__name__
        if failed != self._failed.get(name):
            if failed is None:
                logs.event(INFO, "check_passed", name)
            else:
                logs.event(WARNING, "check_failed", f"{failed}: {trouble}")
        self._failed[name] = failed
        return failed

    @property
    def fallback(self) -> str | None:
        """What finds new jobs while a messenger is down; None if none is."""
        down = [each for each in self._hf.messengers.statuses() if each.is_down]
        said = with_fallback(down, self._hf.settings.poll_seconds)
        return next((each.fallback for each in said), None)

    async def _ask_messengers(self) -> None:
        for each in self._hf.messengers.statuses():
            if each.is_down:
                raise ConnectionError(f"{each.name} is down: {each.because or 'not connected yet'}")

    async def _ask_database(self) -> None:
        """Open a store, which checks the schema, and keep it as long as it answers."""
        store = self._store
        try:
            if store is None:
                store = await self._hf._open()
            await store.now()
            self._store = store
        except BaseException:
            if store is not None:
                store.abandon()
            self._store = None
            raise

    async def _watch(self) -> None:
        """Ask the database while requests take long, and end them if it doesn't answer."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            long_ago = loop.time() - DATABASE_SECONDS_MAX
            late = [limit for limit, since in self._requests.items() if since < long_ago]
            if not late and not self._database_is_down:
                continue
            self._database_is_down = "database" in await self.failing()
            if self._database_is_down:
                for limit in late:
                    if limit in self._requests and not limit.expired():
                        limit.reschedule(loop.time())
