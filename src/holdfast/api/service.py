"""What the routes share: the app, the gate, and the background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

from holdfast.api.bulk_runner import BulkRunner
from holdfast.api.expiry import Expiry
from holdfast.api.gate import Gate
from holdfast.api.group_upkeep import GroupUpkeep
from holdfast.api.health import Health
from holdfast.api.idempotency import delete_expired
from holdfast.api.intake import Intake
from holdfast.api.leases.service import LeaseService
from holdfast.api.limits import STREAM_KEEP_ALIVE_SECONDS
from holdfast.api.traffic import Traffic
from holdfast.api.waiting import Waiting
from holdfast.api.watch import Watch
from holdfast.app import Holdfast


class Service:
    def __init__(
        self,
        hf: Holdfast,
        *,
        upkeep: bool = True,
        stream_keep_alive_seconds: float = STREAM_KEEP_ALIVE_SECONDS,
    ) -> None:
        self.hf = hf
        self.gate = Gate(hf)
        self.waiting = Waiting()
        self.stopping = asyncio.Event()  # set when the server stops: waiting requests end at once
        self.health = Health(hf, self.stopping)
        self.traffic = Traffic(hf._metrics)
        self.bulk = BulkRunner(hf)
        self.groups = GroupUpkeep(hf)
        self.expiry = Expiry(
            hf._seam,
            [partial(delete_expired, hf), hf._bulk_runs.tidy, hf.dead._fold.forget],
        )
        self.leases = LeaseService(hf, self.gate, self.stopping, upkeep=upkeep)
        self.intake = Intake(hf._store)
        self.watch = Watch(
            hf._store, hf._seam, hf._desk.cipher, self.stopping, stream_keep_alive_seconds
        )

        self._others: list[Callable[[], AbstractAsyncContextManager[None]]] = []

    def add_background(self, running: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Enter this context, too, while the server is up."""
        self._others.append(running)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks while the server is up."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.traffic.measured())
            await stack.enter_async_context(self.health.running())
            await stack.enter_async_context(self.watch.running())
            if not self.hf.settings.read_only:
                self.hf.messengers.connect()
                await stack.enter_async_context(self.leases.running())
                await stack.enter_async_context(self.bulk.running())
                await stack.enter_async_context(self.groups.running())
                await stack.enter_async_context(self.expiry.running())
            for running in self._others:
                await stack.enter_async_context(running())
            yield
