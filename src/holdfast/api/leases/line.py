"""A line: requests that want the same jobs and wait for them together.

One claim asks for what all of them want, and its jobs go to the first in the line. So a wake-up
costs the database the same whether one client waits or hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from logging import WARNING
from typing import Final, NamedTuple

from holdfast.api.leases.release import Releaser
from holdfast.api.limits import LEASE_SECONDS_MIN
from holdfast.domain.batches import Portion
from holdfast.domain.encrypted_jobs import CANNOT_DECRYPT, ENCRYPTED, JobCipher
from holdfast.domain.errors import CannotDecrypt
from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.outcomes import Expired, HandedBack, decide
from holdfast.domain.retry import Retry
from holdfast.observability import logs
from holdfast.observability.throughput import Throughput
from holdfast.runtime.backoff import is_set_within
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import (
    Breakers,
    Claim,
    RemoteLeases,
    Store,
    Suspects,
    capability,
    require,
)
from holdfast.wakeups.protocol import Wakeup

# Wake-ups for jobs that others take must not cause claims without a pause.
PACE_SECONDS: Final = 0.01
WISHES_REMEMBERED_MAX: Final = 1000

_NO_RETRY: Final = Retry.none()

Ask = Callable[[Claim], Awaitable[Sequence[Claimed]]]


class Wish(NamedTuple):
    """What a request wants: jobs with these names, in these queues (None: all), of this tenant
    (None: any), leased for this long."""

    names: tuple[str, ...]
    queues: tuple[str, ...] | None
    tenant: str | None
    ttl_seconds: float

    def fits(self, wakeup: Wakeup) -> bool:
        if wakeup.canceled is not None:
            return False
        return self.queues is None or wakeup.queue is None or wakeup.queue in self.queues


class Granted(NamedTuple):
    """A leased job, and the monotonic time before which its lease doesn't expire. If it is not new,
    the client may have received an earlier response with this lease. If it is encrypted in the
    database, its arguments are in plaintext here."""

    job: Claimed
    until: float
    is_new: bool = True
    encrypted: bool = False


@dataclass(eq=False, slots=True)
class Waiter:
    """One request. With `may_repeat`, the client chose the request ID: it may have asked before,
    and may ask again. `is_late` means that the next look is its last."""

    owner: str
    jobs_max: int
    may_repeat: bool
    is_late: bool = False
    was_looked_for: bool = False
    answer: asyncio.Future[Sequence[Granted]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def waits(self) -> bool:
        return not self.answer.done()

    def give(self, granted: Sequence[Granted] = ()) -> None:
        if self.waits:
            self.answer.set_result(granted)

    def fail(self, error: Exception) -> None:
        if self.waits:
            self.answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all lines of a process share. `name` is the prefix of the owners of its claims."""

    name: str
    store: Callable[[], Awaitable[Store]]
    settings: Settings
    seam: Seam
    releaser: Releaser
    cipher: JobCipher
    throughput: Throughput
    claims: count[int] = field(default_factory=count)
    looked_deep: dict[Wish, float] = field(default_factory=dict)  # the most recent

    def is_deep(self, wish: Wish) -> bool:
        """Whether it is time for a full look; once in a while is enough for what is rare."""
        now = self.seam.monotonic()
        before = self.looked_deep.get(wish)
        if before is not None and now < before + self.settings.poll_seconds:
            return False
        self.looked_deep.pop(wish, None)
        self.looked_deep[wish] = now
        if len(self.looked_deep) > WISHES_REMEMBERED_MAX:
            del self.looked_deep[next(iter(self.looked_deep))]
        return True


class Line:
    def __init__(self, wish: Wish, shared: Shared, *, with_breakers: bool) -> None:
        self.wish = wish
        self._shared = shared
        self._with_breakers = with_breakers
        self._waiters: list[Waiter] = []
        self._awake = asyncio.Event()
        self._is_looking = False
        self._portion = Portion(shared.settings.payload_bytes_max)

    def join(self, waiter: Waiter) -> None:
        """Include this request in every look from now on, and look now."""
        self._waiters.append(waiter)
        self._awake.set()

    def wake(self) -> None:
        self._awake.set()

    def end(self, waiter: Waiter) -> None:
        """Time is up for this request: answer it now, or after the look in progress."""
        waiter.is_late = True
        if waiter.was_looked_for and not self._is_looking:
            waiter.give()

    def end_all(self) -> None:
        for waiter in self._waiters:
            waiter.give()
        self._awake.set()

    async def run(self) -> None:
        """Look for jobs until nobody waits."""
        while waiters := self._waiting():
            self._awake.clear()
            self._is_looking = True
            more = False
            try:
                more = await self._look()
            except Exception as error:
                for waiter in waiters:
                    waiter.fail(error)
            self._is_looking = False
            for waiter in waiters:
                waiter.was_looked_for = True
                if waiter.is_late:
                    waiter.give()
            if not more and self._waiting():
                await asyncio.sleep(PACE_SECONDS)
                await is_set_within(self._awake, self._shared.settings.poll_seconds)

    def _waiting(self) -> list[Waiter]:
        self._waiters = [waiter for waiter in self._waiters if waiter.waits]
        return self._waiters.copy()

    async def _look(self) -> bool:
        """Look once for all requests; return whether there may be more jobs."""
        store = await self._shared.store()
        leases = require(store, RemoteLeases, "lease jobs over HTTP")
        is_deep = self._shared.is_deep(self.wish)
        await self._find_earlier(store, leases, all_of_them=is_deep)
        if is_deep:
            await self._look_aside(store, leases)
        return await self._take(leases, store.claim)

    async def _find_earlier(self, store: Store, leases: RemoteLeases, *, all_of_them: bool) -> None:
        """Give repeated requests the leases they got before, perhaps from another server."""
        repeated = {
            waiter.owner: waiter
            for waiter in self._waiting()
            if waiter.may_repeat and (all_of_them or not waiter.was_looked_for)
        }
        found = await leases.leases_of(list(repeated)) if repeated else {}
        if not found:
            return
        until = self._shared.seam.monotonic() + self.wish.ttl_seconds
        held = [job.lease for jobs in found.values() for job in jobs]
        lost = {each.job_id for each in await store.renew(held, self.wish.ttl_seconds)}
        for owner, jobs in found.items():
            kept = [Granted(job, until, is_new=False) for job in jobs if job.id not in lost]
            readable = [each for each in map(self._decrypted, kept) if isinstance(each, Granted)]
            if readable:
                repeated[owner].give(readable)

    async def _look_aside(self, store: Store, leases: RemoteLeases) -> None:
        """Claim what ordinary claims leave out: probes for open breakers, and suspects."""
        breakers = capability(store, Breakers)
        if breakers is not None and self._with_breakers:
            await self._take(leases, breakers.claim_probes)
        if (suspects := capability(store, Suspects)) is not None:

            async def claim_suspect(claim: Claim) -> Sequence[Claimed]:
                job = await suspects.claim_suspect(claim)
                return [] if job is None else [job]

            while await self._take(leases, claim_suspect, jobs_max=1):
                pass

    async def _take(self, leases: RemoteLeases, ask: Ask, jobs_max: int | None = None) -> bool:
        """Claim as many jobs as the connected clients want, and hand them out. Return whether there
        may be more."""
        wanted = sum(waiter.jobs_max for waiter in self._waiting())
        limit = min(wanted, self._portion.rows, jobs_max or wanted)
        if not limit:
            return False
        owner = f"{self._shared.name}/{next(self._shared.claims)}"
        until = self._shared.seam.monotonic() + self.wish.ttl_seconds
        names, queues, tenant, ttl_seconds = self.wish
        claim = Claim(
            owner,
            limit,
            ttl_seconds,
            names,
            queues,
            alone=True,
            tenant=tenant,
            renewal_seconds_min=LEASE_SECONDS_MIN,
        )
        try:
            jobs = await ask(claim)
            await self._hand_out(leases, [Granted(job, until) for job in jobs])
        except BaseException:
            self._shared.releaser.doubt(owner)
            self._portion.failed(limit)
            raise
        self._portion.received(jobs)
        return len(jobs) == limit

    async def _hand_out(self, leases: RemoteLeases, granted: Sequence[Granted]) -> None:
        releaser = self._shared.releaser
        rest = await self._fit(granted)
        shares: list[tuple[Waiter, list[Granted]]] = []
        for waiter in self._waiting():
            if rest:
                shares.append((waiter, rest[: waiter.jobs_max]))
                rest = rest[waiter.jobs_max :]
        releaser.release([each.job.lease for each in rest])
        if not shares:
            return
        try:
            lost = await leases.assign(
                {each.job.lease: waiter.owner for waiter, share in shares for each in share}
            )
        except BaseException:
            for waiter, _ in shares:
                if not waiter.may_repeat:  # nobody else will ask for them
                    releaser.doubt(waiter.owner)
            raise
        for waiter, share in shares:
            kept = [each for each in share if each.job.lease not in lost]
            if not waiter.waits:
                releaser.release([each.job.lease for each in kept])
            elif kept:
                self._shared.throughput.claimed([each.job for each in kept])
                waiter.give(kept)

    async def _fit(self, granted: Sequence[Granted]) -> list[Granted]:
        """End those that have expired, and hand back those that can't be decrypted here."""
        fit: list[Granted] = []
        others: list[Settlement] = []
        for each in granted:
            if each.job.expired:
                others.append(decide(each.job, Expired(), _NO_RETRY, 0.0))
            elif isinstance(decrypted := self._decrypted(each), Granted):
                fit.append(decrypted)
            else:
                others.append(decide(each.job, decrypted, _NO_RETRY, 0.0))
        if others:
            store = await self._shared.store()
            await store.settle(others)
        return fit

    def _decrypted(self, granted: Granted) -> Granted | HandedBack:
        job = granted.job
        if not job.arguments.startswith(ENCRYPTED):
            return granted
        try:
            return granted._replace(job=self._shared.cipher.decrypted(job), encrypted=True)
        except CannotDecrypt as error:
            text = str(error)
            logs.event(WARNING, "handed_back", text, job_id=job.id, name=job.name, fence=job.fence)
            return HandedBack(text, CANNOT_DECRYPT)
