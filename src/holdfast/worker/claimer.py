"""The claimer: leases as many jobs as can start now, and looks again when there may be more."""

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
from holdfast.stores.protocol import Breakers, Claim, Suspects, capability
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.setup import Setup
from holdfast.worker.strays import Strays

Ask = Callable[[Claim], Awaitable[Sequence[Claimed]]]


class Claimer:
    """`start` gets the claimed jobs, and `room` waits until more can start. `is_done` is asked when
    nothing was claimed and nothing runs; True ends the claimer.

    When suspects wait for this process, the claimer takes turns: it runs as many of them as it has
    slots, each when nothing else runs here, and then other jobs.

    A wake-up for one job makes it look only at that job, if it has looked at everything recently.
    """

    def __init__(
        self,
        setup: Setup,
        strays: Strays,
        prefetch: Prefetch,
        start: Callable[[Sequence[Claimed]], None],
        room: Callable[[], Awaitable[None]],
        is_done: Callable[[], Awaitable[bool]],
    ) -> None:
        self._setup = setup
        self._store = setup.store
        self._suspects_store = capability(setup.store, Suspects)
        self._breakers = capability(setup.store, Breakers)
        self._seam = setup.seam
        self._settings = setup.settings
        self._slots = setup.slots
        self._strays = strays
        self._prefetch = prefetch
        self._start = start
        self._room = room
        self._is_done = is_done
        self._awake = asyncio.Event()
        self._woken_for: UUID | None = None
        self._saw_all = False
        self._looked_at = 0.0
        self._stopping = False
        self._suspects_wait = False
        self._suspects_run = 0
        self._probes_are_due = False
        self._probe_timer: asyncio.TimerHandle | None = None
        self._trouble = Backoff(setup.seam, 0.1, 5.0)
        self._turn = 0
        self._portion = Portion(self._settings.payload_bytes_max)
        poll_seconds = self._settings.poll_seconds
        self._poll = Backoff(setup.seam, poll_seconds / 8, poll_seconds)

    def wake(self, job_id: UUID | None = None) -> None:
        """Look for this job, or for any job."""
        self._woken_for = None if self._awake.is_set() else job_id
        self._awake.set()

    def run_suspects(self) -> None:
        """Run the waiting suspects in this process."""
        self._suspects_wait = True
        self.wake()

    def probe_in(self, seconds: float | None) -> None:
        """Claim probes after these seconds, or not at all."""
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
        """Claim no more. A claim in progress is not cut off, which would strand its jobs until
        their leases expire. They go to `start`, which releases them."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        while not self._stopping:
            job_id, self._woken_for = self._woken_for, None
            self._awake.clear()
            try:
                await self._strays.release()
                claimed, more = await self._take_turn(job_id)
                done = not claimed and not self._slots.used and await self._is_done()
            except StoreUnavailable as error:
                logs.event(WARNING, "claim_failed", str(error), worker_id=self._setup.worker_id)
                self._saw_all = False  # the job of the wake-up may still wait
                await self._rest(self._trouble.next_seconds())
                continue
            self._trouble.reset()
            if done:
                return
            if more and not self._stopping:
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

    async def _take_turn(self, job_id: UUID | None) -> tuple[int, bool]:
        """Claim once; return how many jobs came, and whether there may be more."""
        wants_suspect = self._suspects_wait and self._suspects_run < self._slots.concurrency
        if wants_suspect or self._setup.suspects_only:
            return await self._claim_suspect()
        self._suspects_run = 0
        if job_id is not None and self._is_up_to_date():
            claimed, more = await self._claim_job(job_id)
        else:
            claimed, more = await self._claim()
        return claimed, more or self._suspects_wait

    def _is_up_to_date(self) -> bool:
        """Has it recently seen that nothing waits? The limit makes sure that jobs that became due
        since then are found in time, even if wake-ups keep coming."""
        return (
            self._saw_all
            and self._slots.free > 0
            and not self._probes_are_due
            and self._seam.monotonic() < self._looked_at + self._settings.poll_seconds
        )

    async def _claim_job(self, job_id: UUID) -> tuple[int, bool]:
        """Claim the job of a wake-up. Its queue has no limit here."""
        limit = min(self._slots.free, self._portion.rows)
        others = self._slots.groups[-1]
        claim = self._request(limit, others, () if others else self._slots.capped, job_id)
        claimed = await self._claim_and_start(self._store.claim, claim)
        return claimed, claimed == claim.limit

    async def _claim_suspect(self) -> tuple[int, bool]:
        """Claim one suspect when nothing runs here, and nothing else until it has ended."""
        assert self._suspects_store is not None
        if not await self._is_alone():
            if await self._suspects_store.suspects(self._setup.names, self._slots.queues):
                raise WorkerHung(self._slots.hung, suspects_wait=True)
            self._suspects_wait = False  # another worker has them
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

    async def _next_suspect(self, claim: Claim) -> Sequence[Claimed]:
        assert self._suspects_store is not None
        job = await self._suspects_store.claim_suspect(claim)
        self._suspects_wait = job is not None
        return [replace(job, suspect=True)] if job else []

    async def _is_alone(self) -> bool:
        """Wait until nothing runs here. Return False if a hung handler does not end within the
        grace time: then only a new process can run a suspect, or other jobs after a suspect."""
        await self._slots.wait_idle()
        return await self._slots.is_unused_within(self._settings.timeout_grace_seconds)

    async def _claim(self) -> tuple[int, bool]:
        """Claim once for all queues. Probes come first, or they might find no free slot."""
        claimed = 0
        self._prefetch.plan(self._portion.rows)
        more = self._prefetch.room <= 0
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
        if jobs:
            self._poll.reset()
            self._start(jobs)
            if not self._prefetch.ends_soon:
                # Let the handlers take their first step before the next claim: one that blocks the
                # loop must not leave the answer to a claim unread.
                await asyncio.sleep(0)
        return len(jobs)

    async def _ask(self, ask: Ask, claim: Claim) -> Sequence[Claimed]:
        """Claim. After a failure, ask for half: the answer may have been too large to arrive."""
        asked_at = self._seam.monotonic()
        try:
            jobs = await ask(claim)
            # Late, after a blocked loop or a stopped process, the leases may be lost.
            if jobs and self._seam.monotonic() - asked_at > self._settings.lease_seconds / 2:
                jobs = await self._still_ours(jobs)
        except BaseException:
            self._strays.doubt()
            self._portion.failed(claim.limit)
            raise
        self._portion.received(jobs)
        return jobs

    def _claims(self) -> Iterator[Claim]:
        """One claim for each group of queues that may start more jobs.

        The groups take turns to be first: one that is always full would leave no slot to others.
        """
        groups = self._slots.groups
        first = self._turn % len(groups)
        for queues in groups[first:] + groups[:first]:
            room = self._slots.free_for(queues) if self._slots.caps else self._prefetch.room
            limit = min(room, self._prefetch.claim_max, self._portion.rows)
            if limit > 0 and self._setup.names and not self._stopping:
                yield self._request(limit, queues, () if queues else self._slots.capped)

    def _request(
        self,
        limit: int,
        queues: Sequence[str] | None,
        except_queues: Sequence[str] = (),
        job_id: UUID | None = None,
    ) -> Claim:
        return Claim(
            worker=self._setup.worker_id,
            limit=limit,
            lease_seconds=self._settings.lease_seconds,
            names=self._setup.names,
            queues=queues,
            except_queues=except_queues,
            alone=self._slots.concurrency == 1,
            job_id=job_id,
        )

    async def _still_ours(self, jobs: Sequence[Claimed]) -> Sequence[Claimed]:
        leases = [job.lease for job in jobs]
        while True:
            try:
                lost = await self._store.renew(leases, self._settings.lease_seconds)
                break
            except StoreUnavailable as error:
                if self._stopping:
                    raise
                logs.event(WARNING, "claim_failed", str(error), worker_id=self._setup.worker_id)
                await self._trouble.wait()
        gone = {entry.job_id for entry in lost}
        return [job for job in jobs if job.id not in gone]

    async def _rest(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()
