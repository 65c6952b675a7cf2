"""Write how attempts ended: gathered per turn of the loop, many in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile
from logging import ERROR, WARNING
from uuid import UUID

from holdfast.domain.batches import batches, settled_bytes
from holdfast.domain.breakers import Strike
from holdfast.domain.errors import StoreError, StoreRefused, StoreUnavailable
from holdfast.domain.job import Lost, Settlement
from holdfast.domain.limits import (
    BREAKERS_REMEMBERED_MAX,
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

BACKLOG_MAX = 2 * SETTLE_BATCH_MAX
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.1, 5.0
SHRINK = 4  # a batch that failed is retried in this many parts

Ending = tuple[Run, Settlement]
Settled = Callable[[Sequence[Ending], Sequence[Lost]], None]


class Settler:
    """Failures that count against a breaker are counted first; the others don't wait for that.
    Successes are remembered here, and told with the next failure: they cost no statement.

    `settled` is called with what was acknowledged together, and with what of it was lost;
    `struck` with the keys of breakers against which failures were counted."""

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settled: Settled,
        struck: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._seam = seam
        self._breakers = capability(store, Breakers)
        # One line's success says nothing of the other's trouble.
        self._backoff = Backoff(seam, BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX)
        self._strike_backoff = Backoff(seam, BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX)
        self._settled = settled
        self._struck = struck
        self._waiting: list[Ending] = []
        self._is_heavy = False
        self._rows_max = SETTLE_BATCH_MAX
        self._unsure: set[Run] = set()  # may have been written by a try whose answer never came
        self._refused: set[Run] = set()  # and made plain failures
        self._stubborn: set[Run] = set()  # failed by themselves
        self._ready = asyncio.Event()
        self._failures: list[Ending] = []  # yet to be counted
        self._failed = asyncio.Event()
        self._worked: dict[str, float] = {}  # when a job of each breaker last succeeded
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
        """A job that depends on what this breaker guards has succeeded."""
        self._worked.pop(key, None)
        self._worked[key] = monotonic
        if len(self._worked) > BREAKERS_REMEMBERED_MAX:
            del self._worked[next(iter(self._worked))]

    def under_way(self) -> list[Settlement]:
        """What was put and has not been acknowledged; may be asked from any thread."""
        return [settlement for _, settlement in (*self._failures.copy(), *self._waiting.copy())]

    async def wait_idle(self) -> None:
        """Wait until everything that was put has been acknowledged."""
        await self._idle.wait()

    async def wait_room(self) -> None:
        """Wait until less is waiting than two of the largest batches, or than memory is for."""
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
            # One more turn, so that every handler which ends in this one is in the batch.
            await asyncio.sleep(0)
            batch = self._next()
            if not await self._settle(batch):
                continue
            del self._waiting[: len(batch)]
            if not self._waiting:
                self._ready.clear()
            self._tell_progress()

    async def _count_all(self) -> None:
        while True:
            await self._failed.wait()
            await asyncio.sleep(0)
            batch = self._failures[:SETTLE_BATCH_MAX]
            await self._count(batch)
            del self._failures[: len(batch)]
            if not self._failures:
                self._failed.clear()
            self._tell_progress()

    def _tell_progress(self) -> None:
        is_heavy = self._is_heavy and bool(self._waiting)
        if max(len(self._waiting), len(self._failures)) <= BACKLOG_MAX and not is_heavy:
            self._room.set()
        if not self._waiting and not self._failures:
            self._idle.set()

    def _next(self) -> Sequence[Ending]:
        """The next batch: in order, and no more than a statement should carry. What failed by
        itself before goes alone, so that it can't keep others from their end again."""
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
        """Choose how each ends: a failure that finds its breaker open costs no attempt."""
        counted = [run.counted for run, _ in batch if run.counted is not None]
        ended = [run.ended_monotonic for run, _ in batch]
        answers = await self._strike(
            [self._dated(each.strike, then) for each, then in zip(counted, ended, strict=True)]
        )
        for (run, settlement), each, found_open in zip(batch, counted, answers, strict=True):
            # It stands, and counts once, however often it has to be written.
            run.counted = None
            self.put(run, each.held if found_open else settlement)

    def _dated(self, strike: Strike, failed_monotonic: float) -> Strike:
        now = self._seam.monotonic()
        worked = self._worked.get(strike.key)
        return strike._replace(
            failed_seconds_ago=now - failed_monotonic,
            worked_seconds_ago=None if worked is None else now - worked,
        )

    async def _strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        if self._breakers is None:
            return [False] * len(strikes)
        while True:
            try:
                found_open = await self._breakers.strike(strikes)
            except StoreUnavailable as error:
                # If only the answer was lost these failures count twice; nothing worse follows.
                logs.event(WARNING, "settle_failed", str(error), count=len(strikes))
                await self._strike_backoff.wait()
                continue
            except StoreRefused as error:
                logs.event(ERROR, "strike_refused", str(error), count=len(strikes))
                return [False] * len(strikes)
            self._strike_backoff.reset()
            self._struck([strike.key for strike in strikes])
            return found_open

    async def _settle(self, batch: Sequence[Ending]) -> bool:
        """Write once; answer whether the batch is done with. If it is not, it is made smaller for
        the next try: what is in the way of one must not keep the others from their end."""
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
            # Whatever it is: its lease runs out.
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
            # In one step: this may be asked from another thread.
            self._waiting[:] = [*others, *stubborn, *batch]

    async def _not_ours(self, batch: Sequence[Settlement], lost: Sequence[Lost]) -> Sequence[Lost]:
        """Leave out what an earlier try had written although its answer never came."""
        by_id: dict[UUID, Settlement] = {entry.job_id: entry for entry in batch}
        unsure = {run.job.id for run in self._unsure}
        really_lost = []
        for entry in lost:
            job = await self._store.get(entry.job_id) if entry.job_id in unsure else None
            settlement = by_id[entry.job_id]
            written = (
                job is not None
                and job.fence == settlement.fence + 1
                and job.state == settlement.state
            )
            if not written:
                really_lost.append(entry)
        return really_lost


def _bytes(ending: Ending) -> int:
    return settled_bytes(ending[1])


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
