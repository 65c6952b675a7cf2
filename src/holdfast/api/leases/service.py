"""Leases for callers of the API: take, renew and end them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from logging import WARNING
from uuid import uuid4

import msgspec

from holdfast.api.callers import Caller
from holdfast.api.exact_json import pointer_to
from holdfast.api.gate import Gate
from holdfast.api.leases.desk import Desk
from holdfast.api.leases.handover import Handover
from holdfast.api.leases.lease_ids import Named, make_lease_id, read_lease_id
from holdfast.api.leases.line import Granted, Waiter, Wish
from holdfast.api.leases.messages import (
    JobLease,
    LeaseOutcome,
    LeaseRequest,
    Leases,
    LeaseStatus,
    RecordedOutcome,
    Renewal,
    Renewed,
    RenewedLease,
)
from holdfast.api.leases.outcomes import Outcomes
from holdfast.api.limits import WORKER_CHARS_MAX
from holdfast.api.problems import At, Problem
from holdfast.app import Holdfast
from holdfast.domain.errors import UnstorableValue
from holdfast.domain.job import Claimed, Lease, Lost
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.starter import run_upkeep
from holdfast.stores.protocol import ProgressNotes, RemoteLeases, Store, capability, require

RENEWALS_PER_LEASE = 3

Check = Callable[[], Awaitable[None]]


class LeaseService:
    """With `upkeep`, it also does the upkeep of a worker, so a service whose workers all lease over
    HTTP needs no Python worker."""

    def __init__(self, hf: Holdfast, gate: Gate, stopping: asyncio.Event, *, upkeep: bool) -> None:
        self._hf = hf
        self._gate = gate
        self._desk = Desk(hf, stopping)
        self._outcomes = Outcomes(hf)
        self._upkeep = upkeep

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        upkeep = asyncio.create_task(self._keep_up()) if self._upkeep else None
        try:
            async with self._desk.running():
                yield
        finally:
            if upkeep is not None:
                upkeep.cancel()
                await asyncio.gather(upkeep, return_exceptions=True)

    async def _keep_up(self) -> None:
        backoff = Backoff(self._hf._seam, 1.0, 30.0)
        while True:
            try:
                await run_upkeep(self._hf)
            except Exception as error:
                logs.event(WARNING, "sweep_failed", f"{type(error).__name__}: {error}")
            await backoff.wait()

    def take(
        self,
        caller: Caller,
        request: LeaseRequest,
        waiting: AbstractContextManager[None],
        check: Check,
    ) -> Handover:
        """The response to a request for leases, which waits for jobs itself, within `waiting`. If
        there are some, `check` raises if the caller may no longer have them."""
        ttl_seconds = request.ttl_seconds or self._hf.settings.lease_seconds
        queues = None if request.queues is None else tuple(sorted({*request.queues}))
        wish = Wish(self._names(request.names), queues, caller.tenant, ttl_seconds)
        waiter = Waiter(
            _owner(caller, request), request.max, may_repeat=request.request_id is not None
        )

        async def wait(gone: asyncio.Future[None]) -> Sequence[Granted]:
            with waiting:
                return await self._desk.wait(wish, waiter, request.wait_seconds, gone)

        return Handover(
            wait,
            check,
            lambda granted: Leases([self._shown(caller, wish, each) for each in granted]),
            self._desk.releaser.release,
        )

    async def renew(self, caller: Caller, renewal: Renewal) -> Renewed:
        store = await self._hf._store()
        require(store, RemoteLeases, "lease jobs over HTTP")
        ttl_seconds = renewal.ttl_seconds or self._hf.settings.lease_seconds
        named = [self._read(caller, each.lease_id) for each in renewal.leases]
        leases = [None if each is None else each.lease for each in named]
        progress = self._encoded(renewal.leases)
        held = list(dict.fromkeys(lease for lease in leases if lease is not None))
        lost = await store.renew(held, ttl_seconds) if held else []
        states = {Lease(each.job_id, each.fence): each for each in lost}
        notes = capability(store, ProgressNotes)
        if notes is not None:
            told = zip(named, progress, strict=True)
            kept = [(each, data) for each, data in told if each and each.lease not in states]
            await asyncio.gather(
                *(self._record(store, notes, each, data) for each, data in kept if data)
            )
        return Renewed(
            [
                _status(each.lease_id, lease, states, ttl_seconds)
                for each, lease in zip(renewal.leases, leases, strict=True)
            ]
        )

    async def _record(self, store: Store, notes: ProgressNotes, named: Named, data: bytes) -> None:
        if named.encrypted:
            job = await require(store, RemoteLeases, "lease jobs over HTTP").leased(named.lease)
            if job is None:
                return
            data = self._hf._desk.cipher.encrypt(job.tenant, job.name, "progress", data)
        await notes.progress(named.lease, data)

    async def end(self, caller: Caller, lease_id: str, outcome: LeaseOutcome) -> RecordedOutcome:
        named = self._read(caller, lease_id)
        if named is None:
            raise Problem("not-found", "unknown lease ID")
        return await self._outcomes.record(named.lease, outcome)

    def _names(self, given: Sequence[str] | None) -> tuple[str, ...]:
        """The names to claim, aliases included."""
        definitions = self._hf._definitions
        if given is None:
            remote = tuple(sorted(name for name, each in definitions.items() if each.is_remote))
            if not remote:
                text = 'name the jobs to lease, because none is declared with executor="remote"'
                raise Problem("unknown-name", text, [At(text, pointer="/names")])
            return remote
        wanted: set[str] = set()
        for place, name in enumerate(given):
            definition = definitions.get(name)
            if definition is None:
                text = f"no job is named {name!r}{did_you_mean(name, definitions) or ''}"
                raise Problem("unknown-name", text, [At(text, pointer=pointer_to("names", place))])
            wanted |= {definition.name, *definition.aliases}
        return tuple(sorted(wanted))

    def _shown(self, caller: Caller, wish: Wish, granted: Granted) -> JobLease:
        job: Claimed = granted.job
        definition = self._hf._definitions[job.name]
        expires_in = max(0.0, granted.until - self._hf._seam.monotonic())
        return JobLease(
            lease_id=make_lease_id(
                self._gate.secret,
                caller.tenant,
                job.lease,
                encrypted=granted.encrypted or definition.encrypted,
            ),
            job_id=job.id,
            name=definition.name,
            queue=job.queue,
            arguments=msgspec.Raw(job.arguments),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            tenant=job.tenant,
            correlation_id=job.correlation_id or str(job.id),
            trace=job.trace,
            timeout_seconds=definition.timeout_seconds,
            expires_in=expires_in,
            renew_after=min(expires_in, wish.ttl_seconds / RENEWALS_PER_LEASE),
        )

    def _read(self, caller: Caller, lease_id: str) -> Named | None:
        return read_lease_id(self._gate.secret, caller.tenant, lease_id)

    def _encoded(self, leases: Sequence[RenewedLease]) -> list[bytes | None]:
        encoded: list[bytes | None] = []
        for place, each in enumerate(leases):
            try:
                told = each.progress is not msgspec.UNSET
                data = self._hf.settings.results.encode_progress(each.progress) if told else None
            except UnstorableValue as error:
                pointer = pointer_to("leases", place, "progress")
                raise Problem("too-large", str(error), [At(str(error), pointer=pointer)]) from None
            encoded.append(data)
        return encoded


def _owner(caller: Caller, request: LeaseRequest) -> str:
    """The worker's name, for people, and a digest that identifies a repeated request.

    The digest includes the key's ID, so that nobody can get the leases of another key."""
    request_id = request.request_id or str(uuid4())
    worker = request.worker or caller.name
    identity = msgspec.json.encode([caller.key_id, caller.tenant, worker, request_id])
    return f"{worker[:WORKER_CHARS_MAX]}/{hashlib.sha256(identity).hexdigest()[:32]}"


def _status(
    lease_id: str, lease: Lease | None, lost: dict[Lease, Lost], ttl_seconds: float
) -> LeaseStatus:
    if lease is None:
        return LeaseStatus(lease_id, "lost")
    if (found := lost.get(lease)) is not None:
        canceled = found.state is State.CANCELED
        return LeaseStatus(lease_id, "cancel_requested" if canceled else "lost")
    return LeaseStatus(lease_id, "ok", ttl_seconds, ttl_seconds / RENEWALS_PER_LEASE)
