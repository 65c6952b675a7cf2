"""Write how attempts ended: gathered per turn of the loop, many in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from logging import ERROR, WARNING
from uuid import UUID

from holdfast.backoff import Backoff
from holdfast.domain.breakers import Strike
from holdfast.domain.errors import StoreError, StoreRefused, StoreUnavailable
from holdfast.domain.job import Lost, Settlement
from holdfast.domain.limits import SETTLE_BATCH_MAX
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.stores.protocol import Store
from holdfast.worker.run import Run

BACKLOG_MAX = 2 * SETTLE_BATCH_MAX

Ending = tuple[Run, Settlement]
Settled = Callable[[Sequence[Ending], Sequence[Lost]], None]


class Settler:
    """`settled` is called with what was acknowledged together, and with what of it was lost;
    `struck` with the keys of breakers against which failures were counted."""

    def __init__(
        self,
        store: Store,
        backoff: Backoff,
        settled: Settled,
        struck: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._backoff = backoff
        self._settled = settled
        self._struck = struck
        self._waiting: list[Ending] = []
        self._ready = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, run: Run, settlement: Settlement) -> None:
        self._waiting.append((run, settlement))
        if len(self._waiting) == 1:
            self._idle.clear()
            self._ready.set()
        elif len(self._waiting) > BACKLOG_MAX:
            self._room.clear()

    def under_way(self) -> list[Settlement]:
        """What was put and has not been acknowledged; may be asked from any thread."""
        return [settlement for _, settlement in self._waiting.copy()]

    async def wait_idle(self) -> None:
        """Wait until everything that was put has been acknowledged."""
        await self._idle.wait()

    async def wait_room(self) -> None:
        """Wait until less is waiting than two of the largest batches."""
        await self._room.wait()

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            # One more turn, so that every handler which ends in this one is in the batch.
            await asyncio.sleep(0)
            batch = self._waiting[:SETTLE_BATCH_MAX]
            await self._settle(await self._count_failures(batch))
            del self._waiting[: len(batch)]
            if len(self._waiting) <= BACKLOG_MAX:
                self._room.set()
            if not self._waiting:
                self._ready.clear()
                self._idle.set()

    async def _count_failures(self, batch: Sequence[Ending]) -> Sequence[Ending]:
        """Choose how each ends: a failure that finds its breaker open costs no attempt."""
        counted = [run.counted for run, _ in batch if run.counted is not None]
        if not counted:
            return batch
        answers = iter(await self._strike([each.strike for each in counted]))
        return [
            (run, run.counted.held if run.counted is not None and next(answers) else settlement)
            for run, settlement in batch
        ]

    async def _strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        while True:
            try:
                found_open = await self._store.strike(strikes)
            except StoreUnavailable as error:
                # If only the answer was lost these failures count twice; nothing worse follows.
                logs.event(WARNING, "settle_failed", str(error), count=len(strikes))
                await self._backoff.wait()
                continue
            except StoreRefused as error:
                logs.event(ERROR, "strike_refused", str(error), count=len(strikes))
                return [False] * len(strikes)
            self._struck([strike.key for strike in strikes])
            return found_open

    async def _settle(self, batch: Sequence[Ending]) -> None:
        try:
            lost = await self._write([settlement for _, settlement in batch])
        except StoreRefused as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._settle(batch[:middle])
                await self._settle(batch[middle:])
                return
            run, settlement = batch[0]
            batch = [(run, _plain_failure(settlement, error))]
            lost = await self._write_or_let_go(batch[0][1])
        self._settled(batch, lost)

    async def _write_or_let_go(self, settlement: Settlement) -> Sequence[Lost]:
        """Write, or leave to its lease's end what the database refuses whatever it is."""
        try:
            return await self._write([settlement])
        except StoreRefused as error:
            logs.event(ERROR, "settle_refused", str(error), job_id=settlement.job_id)
            return [Lost(settlement.job_id, settlement.fence, State.RUNNING)]

    async def _write(self, batch: Sequence[Settlement]) -> Sequence[Lost]:
        """Write until the store answers; an answer that was lost is read back from the fences."""
        uncertain = False
        while True:
            try:
                lost = await self._store.settle(batch)
                if uncertain:
                    lost = await self._not_ours(batch, lost)
            except StoreUnavailable as error:
                uncertain = True
                logs.event(WARNING, "settle_failed", str(error), count=len(batch))
                await self._backoff.wait()
                continue
            self._backoff.reset()
            return lost

    async def _not_ours(self, batch: Sequence[Settlement], lost: Sequence[Lost]) -> Sequence[Lost]:
        """Leave out what an earlier try had written although its answer never came."""
        by_id: dict[UUID, Settlement] = {entry.job_id: entry for entry in batch}
        really_lost = []
        for entry in lost:
            job = await self._store.get(entry.job_id)
            settlement = by_id[entry.job_id]
            written = (
                job is not None
                and job.fence == settlement.fence + 1
                and job.state == settlement.state
            )
            if not written:
                really_lost.append(entry)
        return really_lost


def _plain_failure(settlement: Settlement, error: StoreError) -> Settlement:
    """End a job whose outcome the database refuses; nothing of that outcome is kept but this."""
    return Settlement(
        job_id=settlement.job_id,
        fence=settlement.fence,
        state=State.FAILED,
        error_code="UNSTORABLE",
        error_text=f"the outcome ({settlement.state}) was refused by the database: "
        f"{type(error).__name__}",
        outcome="failed",
    )
