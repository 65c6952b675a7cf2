"""The settler: writes how attempts ended, many in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile
from logging import ERROR, WARNING

from holdfast.domain.batches import batches, settled_bytes
from holdfast.domain.breakers import Strike
from holdfast.domain.errors import StoreError, StoreRefused, StoreUnavailable
from holdfast.domain.job import Lost, Settlement
from holdfast.domain.limits import (
    SETTLE_BACKLOG_BYTES_MAX,
    SETTLE_BATCH_MAX,
    SETTLE_BYTES_MAX,
)
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Breakers, Store, capability
from holdfast.worker.run import Run
from holdfast.worker.successes import Successes

BACKLOG_MAX = 2 * SETTLE_BATCH_MAX
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.1, 5.0
SHRINK = 4  # a batch that failed is retried in this many parts

Ending = tuple[Run, Settlement]
Settled = Callable[[Sequence[Ending], Sequence[Lost]], None]


class Settler:
    """Writes settlements in batches, and in smaller ones after a failure.

    Failures that count against a breaker are counted first; other settlements don't wait for that.
    Successes are remembered and sent with the next failure, so they cost no statement.

    `settled` is called with each acknowledged batch and those of its jobs that were lost, `struck`
    with the keys of breakers against which failures were counted, and whether each was open.
    """

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settled: Settled,
        struck: Callable[[Sequence[str], Sequence[bool]], None],
    ) -> None:
        self._store = store
        self._seam = seam
        self._breakers = capability(store, Breakers)
        # Two, because settling may work while striking fails.
        self._backoff = Backoff(seam, BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX)
        self._strike_backoff = Backoff(seam, BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX)
        self._settled = settled
        self._struck = struck
        self._waiting: list[Ending] = []
        self._is_heavy = False
        self._rows_max = SETTLE_BATCH_MAX
        self._unsure: set[Run] = set()  # an earlier try may have written them
        self._refused: set[Run] = set()  # now plain failures
        self._stubborn: set[Run] = set()  # failed in a batch of one
        self._ready = asyncio.Event()
        self._failures: list[Ending] = []  # to be counted
        self._failed = asyncio.Event()
        self._successes = Successes(seam)
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, run: Run, settlement: Settlement) -> None:
        if run.counted is None:
            waiting, ready = self._waiting, self._ready
        else:
            waiting, ready = self._failures, self._failed
        waiting.append((run, settlement))
        if len(waiting) == 1:
            self._idle.clear()
            ready.set()
        elif len(waiting) > BACKLOG_MAX:
            self._room.clear()

    def worked(self, key: str, monotonic: float) -> None:
        """Note the success of a job with this breaker."""
        self._successes.note(key, monotonic)

    def under_way(self) -> list[Settlement]:
        """Settlements that are not acknowledged yet. Call it from any thread."""
        return [settlement for _, settlement in (*self._failures.copy(), *self._waiting.copy())]

    async def wait_idle(self) -> None:
        """Wait until every settlement is acknowledged."""
        await self._idle.wait()

    async def wait_room(self) -> None:
        """Wait until the backlog is short, in settlements and in bytes."""
        await self._room.wait()

    async def run(self) -> None:
        parts = [asyncio.create_task(self._write_all()), asyncio.create_task(self._count_all())]
        try:
            await asyncio.gather(*parts)
        finally:
            for part in parts:
                part.cancel()

    async def _write_all(self) -> None:
        while True:
            await self._ready.wait()
            # One more turn of the loop, to batch every handler that ends in this one.
            await asyncio.sleep(0)
            batch = self._next()
            if not await self._settle(batch):
                continue
            del self._waiting[: len(batch)]
            if not self._waiting:
                self._ready.clear()
            self._update_room()

    async def _count_all(self) -> None:
        while True:
            await self._failed.wait()
            await asyncio.sleep(0)
            batch = self._failures[:SETTLE_BATCH_MAX]
            await self._count(batch)
            del self._failures[: len(batch)]
            if not self._failures:
                self._failed.clear()
            self._update_room()

    def _update_room(self) -> None:
        is_heavy = self._is_heavy and bool(self._waiting)
        if max(len(self._waiting), len(self._failures)) <= BACKLOG_MAX and not is_heavy:
            self._room.set()
        if not self._waiting and not self._failures:
            self._idle.set()

    def _next(self) -> Sequence[Ending]:
        """The next batch, in order, small enough for one statement. A stubborn settlement goes
        alone, so that it can't block others again."""
        self._is_heavy = False
        if self._waiting[0][0] in self._stubborn:
            return self._waiting[:1]
        batch = self._waiting[: self._rows_max]
        if self._stubborn:
            batch = list(takewhile(lambda ending: ending[0] not in self._stubborn, batch))
        results = [settlement.result for _, settlement in batch if settlement.result is not None]
        if sum(map(len, results)) <= SETTLE_BYTES_MAX:
            return batch
        if sum(map(_bytes, self._waiting)) > SETTLE_BACKLOG_BYTES_MAX:
            self._is_heavy = True
            self._room.clear()
        return next(batches(batch, len(batch), SETTLE_BYTES_MAX, _bytes))

    async def _count(self, batch: Sequence[Ending]) -> None:
        """Count failures. One that finds its breaker open costs no attempt."""
        counted = [run.counted for run, _ in batch if run.counted is not None]
        strikes = [
            self._successes.dated(each.strike, run.ended_monotonic)
            for each, (run, _) in zip(counted, batch, strict=True)
        ]
        answers = await self._strike(strikes)
        for (run, settlement), each, found_open in zip(batch, counted, answers, strict=True):
            run.counted = None  # it counts once, however often it has to be written
            self.put(run, each.parked if found_open else settlement)

    async def count_now(self, strike: Strike) -> bool:
        """Count a failure that just happened; return whether the breaker was open."""
        dated = self._successes.dated(strike, self._seam.monotonic())
        (found_open,) = await self._strike([dated])
        return found_open

    async def _strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        """Return for each strike whether its breaker was open."""
        while self._breakers is not None:
            try:
                found_open = await self._breakers.strike(strikes)
            except StoreUnavailable as error:
                # If only the answer was lost, these failures count twice. That is harmless.
                logs.event(WARNING, "settle_failed", str(error), count=len(strikes))
                await self._strike_backoff.wait()
                continue
            except StoreRefused as error:
                logs.event(ERROR, "strike_refused", str(error), count=len(strikes))
                break
            self._strike_backoff.reset()
            self._struck([strike.key for strike in strikes], found_open)
            return found_open
        return [False] * len(strikes)

    async def _settle(self, batch: Sequence[Ending]) -> bool:
        """Write once; return whether the batch is done. If not, the next one is smaller: a problem
        with one settlement must not block the others."""
        settlements = [settlement for _, settlement in batch]
        try:
            lost = await self._store.settle(settlements)
            if lost and self._unsure:
                lost = await self._not_ours(settlements, lost)
        except StoreUnavailable as error:
            logs.event(WARNING, "settle_failed", str(error), count=len(batch))
            self._unsure.update(run for run, _ in batch)
            self._make_smaller(batch)
            await self._backoff.wait()
            return False
        except StoreRefused as error:
            if len(batch) > 1:
                self._make_smaller(batch)
                return False
            (run, settlement) = batch[0]
            if run not in self._refused:
                self._refused.add(run)
                self._waiting[0] = (run, _plain_failure(settlement, error))
                return False
            # Even the plain failure was refused: leave the lease to expire.
            logs.event(ERROR, "settle_refused", str(error), job_id=settlement.job_id)
            lost = [Lost(settlement.job_id, settlement.fence, State.RUNNING)]
        self._backoff.reset()
        self._rows_max = min(SETTLE_BATCH_MAX, 2 * self._rows_max)
        for known in (self._unsure, self._refused, self._stubborn):
            if known:
                known.difference_update(run for run, _ in batch)
        self._settled(batch, lost)
        return True

    def _make_smaller(self, batch: Sequence[Ending]) -> None:
        self._rows_max = max(1, len(batch) // SHRINK)
        if len(batch) == 1:
            self._stubborn.add(batch[0][0])
            others = [ending for ending in self._waiting if ending[0] not in self._stubborn]
            stubborn = [ending for ending in self._waiting[1:] if ending[0] in self._stubborn]
            # In one step: another thread may be reading.
            self._waiting[:] = [*others, *stubborn, *batch]

    async def _not_ours(self, batch: Sequence[Settlement], lost: Sequence[Lost]) -> Sequence[Lost]:
        """Leave out what an earlier try wrote although its answer was lost."""
        by_id = {entry.job_id: entry for entry in batch}
        unsure = {run.job.id for run in self._unsure}
        return [
            entry
            for entry in lost
            if entry.job_id not in unsure or not await self._is_written(by_id[entry.job_id])
        ]

    async def _is_written(self, settlement: Settlement) -> bool:
        job = await self._store.get(settlement.job_id)
        if job is None:
            return False
        return job.fence == settlement.fence + 1 and job.state == settlement.state


def _bytes(ending: Ending) -> int:
    return settled_bytes(ending[1])


def _plain_failure(settlement: Settlement, error: StoreError) -> Settlement:
    """End a job whose outcome the database refuses, and keep nothing else of the outcome."""
    return Settlement(
        job_id=settlement.job_id,
        fence=settlement.fence,
        state=State.FAILED,
        error_code="UNSTORABLE",
        error_text=f"the database refused the outcome ({settlement.state}): {type(error).__name__}",
        outcome="failed",
    )
