"""Record the jobs of concurrent requests together: one transaction and one wake-up for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from holdfast.api.limits import BATCH_JOBS_MAX
from holdfast.domain.errors import BadArguments, DuplicateJob, IdempotencyConflict, StoreRefused
from holdfast.domain.job import NewJob, Receipt
from holdfast.domain.scope import all_tenants, scope
from holdfast.stores.protocol import Store

_REFUSED: Final = (BadArguments, DuplicateJob, IdempotencyConflict, StoreRefused)


class _Waiting(NamedTuple):
    job: NewJob
    receipt: asyncio.Future[Receipt]


class Intake:
    """While some jobs are being recorded, new arrivals wait, and are recorded together next. A job
    that arrives alone doesn't wait."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._recording: asyncio.Task[None] | None = None

    async def record(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Like the store's `enqueue`, for one job."""
        (job,) = jobs
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, loop.create_future())
        self._waiting.append(waiting)
        if self._recording is None:
            with all_tenants():
                self._recording = loop.create_task(self._record_all())
        return [await waiting.receipt]

    async def _record_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # for requests that arrived at the same moment
                together = self._waiting[:BATCH_JOBS_MAX]
                del self._waiting[:BATCH_JOBS_MAX]
                await self._record(together)
        finally:
            self._recording = None

    async def _record(self, together: Sequence[_Waiting]) -> None:
        try:
            store = await self._store()
            tenants = {each.job.tenant for each in together}
            with scope(tenants.pop() if len(tenants) == 1 else None):
                receipts = await store.enqueue([each.job for each in together])
        except Exception as error:
            if len(together) > 1 and isinstance(error, _REFUSED):
                # None was recorded. Only the jobs that are refused should fail.
                for each in together:
                    await self._record([each])
                return
            for each in together:
                if not each.receipt.done():
                    each.receipt.set_exception(error)
        else:
            for each, receipt in zip(together, receipts, strict=True):
                if not each.receipt.done():  # its request is still waiting
                    each.receipt.set_result(receipt)
