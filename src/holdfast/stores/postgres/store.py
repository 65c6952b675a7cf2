"""The store on PostgreSQL. `holdfast.stores.protocol` says what each verb promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import (
    Attempt,
    CappedCounts,
    Claimed,
    Count,
    Filter,
    Job,
    Lease,
    Lost,
    NewJob,
    Page,
    Receipt,
    Reclaimed,
    Settlement,
    Standing,
    Watched,
    cancel_reason,
)
from holdfast.domain.overview import Pulse
from holdfast.domain.privileges import Decisions
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.roles import InstalledRoles, RoleDifference
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import (
    breakers,
    claim,
    diagnosis,
    jobs,
    leases,
    queries,
    queues,
    reclaim,
    roles,
    row_security,
    schema,
    settle,
    upkeep,
    vacuum,
    workers,
)
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.enqueue import Enqueuer
from holdfast.stores.postgres.enrolled import ForeignEnqueuer, PostgresEnrolled
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.postgres.server_limits import Limits
from holdfast.stores.protocol import AfterCommit, Canceled, Claim, Enrolled
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.postgres import PostgresListener, log_unavailable, start_listening
from holdfast.wakeups.protocol import Heard

RENEW_SECONDS_MIN = 2.0  # to connect and get an answer, however short the leases are


class PostgresStore:
    """Keep jobs in a PostgreSQL database, whose clock decides."""

    def __init__(
        self,
        url: str,
        seam: Seam,
        *,
        pool_size: int = 4,
        retention: Retention = A_WEEK,
        lease_seconds: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self._seam = seam
        self._retention = retention
        self._limits = limits = Limits(lease_seconds)
        self._connections = Connections(url, seam, pool_size, limits, read_only=read_only)
        self._caps = Caps(self._connections, seam)
        self._claimer = claim.Claimer(self._fetch, self._fetch_aside, self._caps, seam)
        self._enqueuer = Enqueuer(self._connections.prolong)
        self._foreign_enqueuer = ForeignEnqueuer()
        self._settler = settle.Settler(retention, limits.commit_seconds)
        self._reclaimer = reclaim.Reclaimer(self._fetch_aside, retention, seam)
        self._vacuum = vacuum.Vacuum(self._connections)
        self._examiner = diagnosis.Examiner(self._connections, seam, retention, self._notify)

    @property
    def address(self) -> str:
        return self._connections.address

    @property
    def pool_use(self) -> tuple[int, int]:
        return self._connections.use

    async def open(self) -> None:
        async with self._within(self._limits.connect_seconds, "answer"):
            found = await self._connections.run(self._check)
        self._connections.row_security = found
        self._enqueuer.may_copy = not found.is_active

    async def _check(self, connection: Any) -> row_security.RowSecurity:
        await self._connections.check_read_only(connection)
        await schema.check(connection, self.address)
        return await row_security.find(connection)

    async def close(self) -> None:
        await self._claimer.close()
        await self._connections.close()

    def abandon(self) -> None:
        self._connections.abandon()

    async def migrate(self) -> Sequence[str]:
        done = await self._connections.run(
            lambda connection: schema.migrate(connection, self.address), endless=True
        )
        await upkeep.keep_days(self._fetch, self._retention)
        return done

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        if not jobs:
            return []
        return await self._connections.run(
            lambda connection: self._enqueuer.enqueue(connection, jobs)
        )

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        return await self._claimer.claim(request)

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await self._claimer.claim_by_id(job_id, worker, lease_seconds)

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        # Give up on a silent connection while there is time to renew on another one.
        async with self._within(max(lease_seconds / 2, RENEW_SECONDS_MIN), "renew leases"):
            return await self._connections.run(
                lambda connection: self._settler.renew(connection, leases, lease_seconds)
            )

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await settle.release_strays(self._fetch, worker, known, limit)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._connections.run(
            lambda connection: self._settler.settle(connection, settlements)
        )

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        return await self._reclaimer.reclaim(limit, dead_worker, reason)

    async def cancel(
        self,
        job_ids: Sequence[UUID],
        *,
        waiting_only: bool = False,
        by: str | None = None,
        because: str | None = None,
    ) -> Sequence[Canceled]:
        reason = cancel_reason(by, because)
        return await jobs.cancel(self._fetch, self._retention, job_ids, waiting_only, reason)

    async def retry(self, job_id: UUID) -> bool:
        return await jobs.retry(self._fetch, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        return await jobs.requeue(self._fetch, self._retention, job_id, new_id, arguments, once)

    async def get(self, job_id: UUID) -> Job | None:
        return await queries.get(self._fetch, job_id)

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await queries.page(self._fetch_planned, filter, limit, after)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return await queries.counts(self._fetch_planned, tenant)

    async def now(self) -> datetime:
        return await queries.now(self._fetch)

    async def queues(self) -> Sequence[QueueStatus]:
        return await queues.queues(self._fetch)

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        return await queries.awaited(self._fetch, names, queues, within_seconds)

    def connection(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        return self._connections.connection()

    def enrol(self, driver: Driver, after_commit: AfterCommit | None = None) -> Enrolled:
        # The commit sends the wake-ups: NOTIFY is transactional.
        return PostgresEnrolled(
            driver, self._foreign_enqueuer, self._settler, self._retention, self.address
        )

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def standing(self, job_id: UUID) -> Standing | None:
        return await settle.standing(self._fetch, job_id)

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        return await self._claimer.claim_suspect(request)

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        return await queries.suspects(self._fetch_aside, names, queues)

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        return await queues.pause(self._fetch, queue, by, because)

    async def is_paused(self, queue: str) -> bool:
        return await queues.is_paused(self._fetch, queue)

    async def resume(self, queue: str) -> bool:
        return await queues.resume(self._fetch, queue)

    async def cap(self, queue: str, running_max: int | None) -> None:
        await queues.cap(self._fetch, queue, running_max)
        self._caps.look_again()

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        return await breakers.strike(self._fetch, strikes)

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        await breakers.open_breaker(self._fetch, key, by, because)

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        return await breakers.close_breaker(self._fetch, key, forget, by_hand)

    async def park(self, limit: int) -> Parking:
        return await self._connections.run(
            lambda connection: breakers.park(connection, limit), aside=True
        )

    async def claim_probes(self, request: Claim) -> Sequence[Claimed]:
        return await self._claimer.claim_probes(request)

    async def breakers(self) -> Sequence[BreakerStatus]:
        return await breakers.breakers(self._fetch)

    async def register(self, worker: NewWorker, load: Load) -> None:
        await workers.register(self._fetch, worker, load)

    async def heartbeat(self, worker_id: str, load: Load) -> bool:
        return await workers.heartbeat(self._fetch, worker_id, load)

    async def deregister(self, worker_id: str) -> None:
        await workers.deregister(self._fetch, worker_id)

    async def workers(self) -> Sequence[WorkerStatus]:
        return await workers.workers(self._fetch)

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        return await self._connections.run(
            lambda connection: diagnosis.circumstances(connection, job_id)
        )

    async def vitals(self, patience: Patience) -> Vitals:
        return await self._examiner.vitals(patience)

    async def pulse(self, newest_max: int) -> Pulse:
        return await queries.pulse(self._fetch, newest_max)

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        return await queries.unknown_names(self._fetch_aside, names, queues)

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return await queries.attempts(self._fetch, job_id)

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return await queries.requeued(self._fetch, job_ids)

    async def tidy(self, limit: int) -> int:
        return await upkeep.tidy(self._fetch_aside, self._retention, limit)

    async def vacuum(self) -> None:
        await self._vacuum.run()

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        return await settle.progress(self._fetch, lease, progress)

    async def leased(self, lease: Lease) -> Claimed | None:
        return await leases.leased(self._fetch, lease)

    async def leases_of(self, workers: Sequence[str]) -> Mapping[str, Sequence[Claimed]]:
        return await leases.leases_of(self._fetch, workers)

    async def assign(self, owners: Mapping[Lease, str]) -> Sequence[Lease]:
        return await leases.assign(self._fetch, owners)

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        return await queries.changed(self._fetch, known)

    async def counts_up_to(self, jobs_max: int, tenant: str | None = None) -> CappedCounts:
        return await queries.counts_up_to(self._fetch_planned, jobs_max, tenant)

    async def installed_roles(self) -> InstalledRoles | None:
        return await self._connections.run(roles.installed)

    async def install_roles(
        self, change: roles.Change, verifiers: Mapping[str, str]
    ) -> tuple[InstalledRoles, Sequence[RoleDifference]]:
        return await self._connections.run(
            lambda connection: roles.install(connection, change, verifiers), endless=True
        )

    async def role_differences(self, wanted: InstalledRoles) -> Sequence[RoleDifference]:
        return await self._connections.run(
            lambda connection: roles.differences(connection, roles.with_ours(wanted))
        )

    async def remove_roles(self) -> Mapping[str, Sequence[str]]:
        return await self._connections.run(roles.remove, endless=True)

    async def migrate_as_owner(
        self,
        connection: Any,
        decisions: Mapping[str, Decisions],
        migrate: Callable[[], Awaitable[Sequence[str]]],
    ) -> list[str]:
        return await roles.migrate_as_owner(connection, decisions, migrate)

    async def listen(self, heard: Heard) -> PostgresListener | None:
        if await self._connections.share_servers():
            # LISTEN would stay with a session that others use.
            log_unavailable(self.address)
            return None
        if self._connections.read_only and await self._is_standby():
            return None  # nobody can listen there
        return await start_listening(
            heard,
            connect=self._connections.connect,
            notify=self._notify,
            random=self._seam.random,
            address=self.address,
            pooled=self._connections.pooled,
        )

    async def _is_standby(self) -> bool:
        (row,) = await self._fetch("standby")
        return bool(row["is_standby"])

    async def wake(self, queue: str) -> None:
        await self._notify(f"q:{queue}")

    async def _notify(self, payload: str) -> None:
        await self._fetch("notify", payload=payload)

    async def _fetch(self, name: str, /, **values: Any) -> Sequence[Any]:
        return await self._connections.fetch(SQL[name], values)

    async def _fetch_aside(self, name: str, /, **values: Any) -> Sequence[Any]:
        """For upkeep, which must not take the claims' usual connection."""
        return await self._connections.fetch(SQL[name], values, aside=True)

    async def _fetch_planned(
        self, name: str, /, settings: str = queries.PLANNED, **values: Any
    ) -> Sequence[Any]:
        return await self._connections.read(settings, SQL[name], values)

    @asynccontextmanager
    async def _within(self, seconds: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise StoreUnavailable(
                f"PostgreSQL at {self.address} did not {what} within {seconds:g} s"
            ) from error
