"""Lease as many jobs as can start at once, and look again when there may be more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from logging import WARNING
from uuid import UUID

from msgspec.structs import replace

from holdfast.domain.batches import Portion
from holdfast.domain.errors import StoreUnavailable, WorkerHung
from holdfast.domain.job import Claimed
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Breakers, Claim, Store, Suspects, capability
from holdfast.worker.slots import Slots
from holdfast.worker.strays import Strays

HALF_MIN = 200  # a claim costs the database as much as some 25 jobs

Ask = Callable[[Claim], Awaitable[Sequence[Claimed]]]


class Claimer:
    """`start` gets what was claimed, `room` waits until more can start, `is_done` is asked when
    nothing was claimed and nothing runs: True ends the claimer.

    Told that suspects wait for this process, it takes turns: it runs as many of them as it has
    slots, each when nothing else runs here, and then what others wait for.

    Told of one job, it looks at that only, if it has looked at everything not long before.
    """

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settings: Settings,
        slots: Slots,
        names: Sequence[str],
        worker_id: str,
        start: Callable[[Sequence[Claimed]], None],
        room: Callable[[], Awaitable[None]],
        is_done: Callable[[], Awaitable[bool]],
        strays: Strays,
    ) -> None:
        self._store = store
        self._quarantine = capability(store, Suspects)
        self._breakers = capability(store, Breakers)
        self._seam = seam
        self._settings = settings
        self._slots = slots
        self._names = names
        self._worker_id = worker_id
        self._start = start
        self._room = room
        self._is_done = is_done
        self._strays = strays
        self._awake = asyncio.Event()
        self._told: UUID | None = None
        self._saw_all = False
        self._looked_at = 0.0
        self._stopping = False
        self._suspects_wait = False
        self._suspects_run = 0
        self._probes_are_due = False
        self._probe_timer: asyncio.TimerHandle | None = None
        self._trouble = Backoff(seam, 0.1, 5.0)
        self._turn = 0
        self._portion = Portion(settings.payload_bytes_max)
        self._was_full = False
        self._ends_at_once = False
        self._poll = Backoff(seam, settings.poll_seconds / 8, settings.poll_seconds)

    def wake(self, job_id: UUID | None = None) -> None:
        """There is something to claim: this job, or whatever it is."""
        self._told = None if self._awake.is_set() else job_id
        self._awake.set()

    def run_suspects(self) -> None:
        """Suspects wait that this process has to run."""
        self._suspects_wait = True
        self.wake()

    def probe_in(self, seconds: float | None) -> None:
        """A job is to be sent ahead in so many seconds, to see whether its breaker can close."""
        if self._probe_timer is not None:
            self._probe_timer.cancel()
            self._probe_timer = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._probe_timer = loop.call_later(max(0.0, seconds), self._send_probes)

    def _send_probes(self) -> None:
        self._probes_are_due = True
        self.wake()

    def stop(self) -> None:
        """Claim no more. A claim that is under way is not cut off: its jobs would be stranded
        until their leases ran out; they are handed to `start`, which releases them."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        while not self._stopping:
            told, self._told = self._told, None
            self._awake.clear()
            try:
                await self._strays.release()
                claimed, more = await self._take_turn(told)
                done = not claimed and not self._slots.used and await self._is_done()
            except StoreUnavailable as error:
                logs.event(WARNING, "claim_failed", str(error), worker_id=self._worker_id)
                self._saw_all = False  # and what it was told of may still wait
                await self._rest(self._trouble.next_seconds())
                continue
            self._trouble.reset()
            if done:
                return
            if more:
                await self._wait_room()
            else:
                await self._rest(min(self._poll.next_seconds(), self._strays.seconds_left))

    async def _wait_room(self) -> None:
        while self._strays.are_possible:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._strays.seconds_left):
                    await self._room()
                    return
            await self._strays.release()
        await self._room()

    async def _take_turn(self, told: UUID | None) -> tuple[int, bool]:
        """Claim once; answer how many jobs came, and whether there may be more."""
        if self._suspects_wait and self._suspects_run < self._slots.concurrency:
            return await self._claim_suspect()
        self._suspects_run = 0
        if told is not None and self._is_up_to_date():
            claimed, more = await self._claim_told(told)
        else:
            claimed, more = await self._claim()
        return claimed, more or self._suspects_wait

    def _is_up_to_date(self) -> bool:
        """Has it seen, not long ago, that nothing waits? What became due since then is found in
        time, although wake-ups keep coming."""
        return (
            self._saw_all
            and self._slots.free > 0
            and not self._probes_are_due
            and self._seam.monotonic() < self._looked_at + self._settings.poll_seconds
        )

    async def _claim_told(self, job_id: UUID) -> tuple[int, bool]:
        """Claim the job of which it was told; its queue is none of those with a limit."""
        limit = min(self._slots.free, self._portion.rows)
        others = self._slots.groups[-1]
        claim = self._request(limit, others, () if others else self._slots.capped, job_id)
        claimed = await self._claim_and_start(self._store.claim, claim)
        return claimed, claimed == claim.limit

    async def _claim_suspect(self) -> tuple[int, bool]:
        """Claim one suspect when nothing runs here, and claim nothing else until it has ended."""
        if not await self._is_alone():
            if await self._suspects_are_due():
                raise WorkerHung(self._slots.hung, suspects_wait=True)
            self._suspects_wait = False  # Another worker has them.
            return 0, True
        if self._stopping:
            return 0, False
        jobs = await self._ask(self._next_suspect, self._request(1, self._slots.queues))
        if jobs:
            self._suspects_run += 1
            self._start(jobs)
            if not await self._is_alone():
                raise WorkerHung(self._slots.hung, suspects_wait=True)
        return len(jobs), True

    async def _suspects_are_due(self) -> bool:
        if self._quarantine is None:
            return False
        return await self._quarantine.suspects(self._names, self._slots.queues) > 0

    async def _next_suspect(self, claim: Claim) -> Sequence[Claimed]:
        job = None if self._quarantine is None else await self._quarantine.claim_suspect(claim)
        self._suspects_wait = job is not None
        return [replace(job, suspect=True)] if job else []

    async def _is_alone(self) -> bool:
        """Wait until nothing runs here; False if what hangs does not end within the grace. Then
        only a new process can run a suspect, or may run others beside a suspect that hangs."""
        await self._slots.wait_idle()
        try:
            async with asyncio.timeout(self._settings.timeout_grace_seconds):
                await self._slots.wait_unused()
        except TimeoutError:
            return False
        return True

    async def _claim(self) -> tuple[int, bool]:
        """Claim once for all queues; first what is sent ahead, for which no slot may be left."""
        claimed = 0
        more = False
        self._turn += 1
        self._looked_at = self._seam.monotonic()
        if self._probes_are_due and self._breakers is not None:
            self._probes_are_due = False
            for claim in self._claims():
                claimed += await self._claim_and_start(self._breakers.claim_probes, claim)
        for claim in self._claims():
            count = await self._claim_and_start(self._store.claim, claim)
            claimed += count
            more = more or count == claim.limit
        self._saw_all = self._slots.free > 0 and not more
        return claimed, more

    async def _claim_and_start(self, ask: Ask, claim: Claim) -> int:
        jobs = await self._ask(ask, claim)
        self._ends_at_once = self._was_full and not self._slots.used
        self._was_full = len(jobs) == claim.limit
        if jobs:
            self._poll.reset()
            self._start(jobs)
            if not self._ends_at_once:
                # The handlers take their first step before the next claim is sent: one that blocks
                # the loop must not leave the answer to a claim lying unread.
                await asyncio.sleep(0)
        return len(jobs)

    async def _ask(self, ask: Ask, claim: Claim) -> Sequence[Claimed]:
        """Claim. After a failure, ask for half: the answer may have been too large to come."""
        asked_at = self._seam.monotonic()
        try:
            jobs = await ask(claim)
            if self._is_late(asked_at):
                jobs = await self._still_ours(jobs)
        except BaseException:
            self._strays.doubt()
            self._portion.failed(claim.limit)
            raise
        self._portion.came(jobs)
        return jobs

    def _claims(self) -> Iterator[Claim]:
        """One claim for each group of queues in which there is room.

        They take turns to be first, or one that is always full would leave no slot to the others.
        """
        groups = self._slots.groups
        first = self._turn % len(groups)
        for queues in groups[first:] + groups[:first]:
            limit = min(self._slots.free_for(queues), self._at_a_time(), self._portion.rows)
            if limit > 0 and self._names and not self._stopping:
                yield self._request(limit, queues, () if queues else self._slots.capped)

    def _at_a_time(self) -> int:
        """How many to claim at most. While claims come back full and what they bring ends at once,
        half of the slots work while the other half is filled, unless that makes claims small."""
        concurrency = self._slots.concurrency
        if not self._ends_at_once:
            return concurrency
        return min(concurrency, max(HALF_MIN, (concurrency + 1) // 2))

    def _request(
        self,
        limit: int,
        queues: Sequence[str] | None,
        except_queues: Sequence[str] = (),
        job_id: UUID | None = None,
    ) -> Claim:
        return Claim(
            worker=self._worker_id,
            limit=limit,
            lease_seconds=self._settings.lease_seconds,
            names=self._names,
            queues=queues,
            except_queues=except_queues,
            alone=self._slots.concurrency == 1,
            job_id=job_id,
        )

    def _is_late(self, asked_at: float) -> bool:
        """Did the answer come late (a blocked loop, a stopped process)?"""
        return self._seam.monotonic() - asked_at > self._settings.lease_seconds / 2

    async def _still_ours(self, jobs: Sequence[Claimed]) -> Sequence[Claimed]:
        if not jobs:
            return jobs
        leases = [job.lease for job in jobs]
        while True:
            try:
                lost = await self._store.renew(leases, self._settings.lease_seconds)
                break
            except StoreUnavailable as error:
                if self._stopping:
                    raise
                logs.event(WARNING, "claim_failed", str(error), worker_id=self._worker_id)
                await self._trouble.wait()
        gone = {entry.job_id for entry in lost}
        return [job for job in jobs if job.id not in gone]

    async def _rest(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()


class SuspectClaimer(Claimer):
    """For a process that runs suspects and nothing else, and ends when none is due."""

    async def _take_turn(self, told: UUID | None) -> tuple[int, bool]:
        return await self._claim_suspect()
