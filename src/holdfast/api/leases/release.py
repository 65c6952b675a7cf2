"""Release jobs that were leased to a client that never received them.

They did not start, so each gets its attempt back, and this doesn't count as a release.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from logging import ERROR, WARNING
from typing import Any, Final

from holdfast.domain.errors import StoreRefused, StoreUnavailable
from holdfast.domain.job import Lease, Settlement
from holdfast.domain.limits import CLAIM_BATCH_MAX
from holdfast.domain.scope import all_tenants
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store

CLOSE_SECONDS_MAX: Final = 2.0


class Releaser:
    """Works in the background, and retries while the database is down."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], settings: Settings, seam: Seam
    ) -> None:
        self._store = store
        self._settings = settings
        self._seam = seam
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def release(self, leases: Sequence[Lease]) -> None:
        """Release these jobs, unless another worker has them by now."""
        if leases:
            self._start(self._release(leases))

    def doubt(self, owner: str) -> None:
        """A claim for this owner got no answer: release what the database may have leased to it.

        The database may still execute the claim after its connection is gone, so this looks at once
        and then for the length of a lease."""
        self._start(self._release_strays(owner))

    async def close(self) -> None:
        self._closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS_MAX)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        with all_tenants():
            task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, leases: Sequence[Lease]) -> None:
        released = [
            Settlement(job_id=each.job_id, fence=each.fence, state=State.QUEUED, attempt_back=True)
            for each in leases
        ]
        await self._insist(lambda store: store.settle(released))

    async def _release_strays(self, owner: str) -> None:
        until = self._seam.monotonic() + self._settings.lease_seconds
        while True:
            await self._insist(lambda store: store.release_strays(owner, (), CLAIM_BATCH_MAX))
            is_closing = await is_set_within(self._closing, self._settings.renewal_seconds)
            if is_closing or self._seam.monotonic() >= until:
                return

    async def _insist(self, write: Callable[[Store], Awaitable[object]]) -> None:
        backoff = Backoff(self._seam, 0.1, 5.0)
        while True:
            try:
                await write(await self._store())
                return
            except StoreUnavailable as error:
                logs.event(WARNING, "settle_failed", str(error))
            except StoreRefused as error:
                logs.event(ERROR, "settle_refused", str(error))
                return
            await backoff.wait()
