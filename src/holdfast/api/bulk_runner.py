"""Run bulk changes in the background of a server. Leases decide which server runs which change.

A server runs few changes at a time, so they take turns. A change gives up its place when its turn
is over, or when its next step is not due soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from logging import ERROR, WARNING
from typing import Final

from holdfast.app import Holdfast
from holdfast.domain.errors import HoldfastError, NotInThisStore, StoreUnavailable
from holdfast.domain.limits import BULK_LEASE_SECONDS, BULK_RUNNING_MAX
from holdfast.domain.texts import error_text
from holdfast.observability import logs
from holdfast.operations.bulk_run import BulkLease, Step
from holdfast.runtime.backoff import Backoff, is_set_within

LOOK_SECONDS: Final = 1.0
RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
RELEASE_SECONDS_MAX: Final = 2.0
RENEW_SECONDS: Final = BULK_LEASE_SECONDS / 3
TURN_SECONDS: Final = 2.0
SOON_SECONDS: Final = 1.0


class BulkRunner:
    def __init__(self, hf: Holdfast) -> None:
        self._runs = hf._bulk_runs
        self._seam = hf._seam
        self._owner = hf._seam.identity()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for a change to run now, because one was started here."""
        self._wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run changes until the end of the block, then leave them to other servers."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            tasks = {looking, *self._tasks}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if len(tasks) > 1:
                with suppress(HoldfastError, TimeoutError):  # the leases expire
                    async with asyncio.timeout(RELEASE_SECONDS_MAX):
                        await self._runs.release(self._owner)

    async def _look(self) -> None:
        """Claim changes with a due step that no server is running."""
        backoff = Backoff(self._seam, LOOK_SECONDS, RETRY_SECONDS_MAX)
        while True:
            self._wake.clear()
            wait_seconds = LOOK_SECONDS
            try:
                await self._claim()
                backoff.reset()
            except NotInThisStore:
                return
            except HoldfastError:  # no database, or no tables yet: `/v1/health/ready` says so
                wait_seconds = backoff.next_seconds()
            except Exception as error:
                text = "can't look for bulk changes to run; will try again"
                logs.event(ERROR, "bulk_look_failed", text, error_text=error_text(error))
                wait_seconds = backoff.next_seconds()
            await is_set_within(self._wake, wait_seconds)

    async def _claim(self) -> None:
        free = BULK_RUNNING_MAX - len(self._tasks)
        if free == 0:
            return
        for lease in await self._runs.claim(self._owner, free):
            task = asyncio.create_task(self._run(lease))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake()

    async def _run(self, lease: BulkLease) -> None:
        turn_ends = self._seam.monotonic() + TURN_SECONDS
        backoff = Backoff(self._seam, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        while True:
            began = self._seam.monotonic()
            try:
                step = await self._runs.step(lease)
            except StoreUnavailable:
                await backoff.wait()
                continue
            except Exception as error:
                await self._fail(lease, error)
                return
            if step.wait_seconds is None:
                return
            if step.wait_seconds > SOON_SECONDS:
                asyncio.get_running_loop().call_later(step.wait_seconds, self.wake)
                await self._give_back(lease)
                return
            backoff.reset()
            took_seconds = self._seam.monotonic() - began
            await asyncio.sleep(rest_seconds(step, took_seconds))
            if self._seam.monotonic() >= turn_ends:
                await self._give_back(lease)
                return

    async def _give_back(self, lease: BulkLease) -> None:
        with suppress(HoldfastError):  # the lease expires
            await self._runs.give_back(lease)

    async def _fail(self, lease: BulkLease, error: Exception) -> None:
        logs.event(
            WARNING,
            "bulk_change_failed",
            f"paused bulk change {lease.change_id}, because a step failed",
            error_text=error_text(error),
        )
        with suppress(HoldfastError):  # the lease expires, and the next runner tries again
            await self._runs.fail(lease, error_text(error))


def rest_seconds(step: Step, took_seconds: float) -> float:
    """How long to wait for the next step, which also renews the lease.

    After a step that changed jobs comes a pause as long as the step. SQLite has one writer, and
    workers would starve.
    """
    assert step.wait_seconds is not None
    due_seconds = step.wait_seconds - took_seconds
    rest = max(due_seconds, took_seconds) if step.jobs else max(due_seconds, 0.0)
    return min(rest, RENEW_SECONDS)
