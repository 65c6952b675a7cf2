"""The store protocol on an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from holdfast.domain.breakers import BreakerSeen, Holding, Strike
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.health.vitals import Patience, Vitals
from holdfast.domain.job import (
    Attempt,
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
)
from holdfast.domain.overview import Pulse
from holdfast.domain.queues import QueueSeen
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerSeen
from holdfast.seam import Seam
from holdfast.stores.foreign import Driver
from holdfast.stores.protocol import Canceled, Claim, Enrolled
from holdfast.stores.sqlite import (
    breakers,
    enqueueing,
    health,
    interventions,
    leasing,
    presence,
    queues,
    reading,
    tidying,
)
from holdfast.stores.sqlite.completing import check_not_holding, holding, lend
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.foreign import SqliteEnrolled
from holdfast.stores.sqlite.lanes import ReadLane, Transaction, WriteLane
from holdfast.stores.sqlite.values import after
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Heard, Listener

T = TypeVar("T")

RECLAIM_WAIT_SECONDS_MAX = 1.0
LATE_RECLAIMS_MAX = 5  # in a row; then a file that is always busy keeps nobody from renewing


class SqliteStore:
    """Keep jobs in an SQLite file. There is no server, so the clock is this machine's."""

    def __init__(
        self,
        path: str,
        seam: Seam,
        *,
        synchronous: str = "FULL",
        retention: Retention = A_WEEK,
    ) -> None:
        self._seam = seam
        self._database = Database(path, seam, synchronous, retention)
        self._signals = LocalSignals(path)
        self._turns = count()
        self._late_reclaims = 0
        self._writer: WriteLane | None = None
        self._reader: ReadLane | None = None

    async def open(self) -> None:
        """Connect; a file that is new or has an older schema is brought to this code's version."""
        if self._writer is not None:
            return
        database = self._database
        self._writer = WriteLane(
            self._seam, "holdfast-writer", database, database.connect_writer, self._signals.send
        )
        self._reader = ReadLane(self._seam, "holdfast-reader", database, database.connect_reader)
        try:
            await self._write(lambda transaction: None)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if writer is not None:
            await writer.close()
        if reader is not None:
            await reader.close()
        self._signals.close()

    def abandon(self) -> None:
        for lane in (self._writer, self._reader):
            if lane is not None:
                lane.abandon()
        self._signals.close()

    async def migrate(self) -> Sequence[str]:
        if self._writer is not None:
            return []
        await self.open()
        await self.close()
        return self._database.steps_taken

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        return await self._write(lambda transaction: enqueueing.enqueue(transaction, jobs))

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        turn = next(self._turns)
        return await self._write(lambda transaction: leasing.claim(transaction, claim, turn))

    async def claim_suspect(self, claim: Claim) -> Claimed | None:
        return await self._write(lambda transaction: leasing.claim_suspect(transaction, claim))

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        now = self._database.now()
        return await self._read(lambda connection: reading.suspects(connection, names, queues, now))

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await self._write(
            lambda transaction: leasing.claim_by_id(transaction, job_id, worker, lease_seconds)
        )

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await self._write(
            lambda transaction: leasing.renew(transaction, leases, lease_seconds)
        )

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await self._write(
            lambda transaction: leasing.release_strays(transaction, worker, known, limit)
        )

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        return await self._write(lambda transaction: leasing.progress(transaction, lease, progress))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._write(lambda transaction: leasing.settle(transaction, settlements))

    def lend(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        return lend(self._seam, self._database, read_only)

    def enrol(self, driver: Driver) -> Enrolled:
        return SqliteEnrolled(driver, self._database)

    def holding(self) -> AbstractContextManager[None]:
        return holding(self._database.path)

    async def standing(self, job_id: UUID) -> Standing | None:
        return await self._write(lambda transaction: leasing.standing(transaction, job_id))

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        asked_at = self._seam.monotonic()

        def reclaim(transaction: Transaction) -> Sequence[Reclaimed]:
            if dead_worker is not None:
                return interventions.reclaim_from(transaction, limit, dead_worker, reason)
            late = self._seam.monotonic() - asked_at > RECLAIM_WAIT_SECONDS_MAX
            if limit and late and self._late_reclaims < LATE_RECLAIMS_MAX:
                # Whoever kept the file locked kept the living from renewing: they come first.
                self._late_reclaims += 1
                return []
            self._late_reclaims = 0 if limit else self._late_reclaims
            return interventions.reclaim(transaction, limit)

        return await self._write(reclaim)

    async def tidy(self, limit: int) -> int:
        done, refused = await self._write(lambda transaction: tidying.tidy(transaction, limit))
        if refused is not None:
            raise self._database.translated(refused) from refused
        return done

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        return await self._write(
            lambda transaction: interventions.cancel(transaction, job_ids, waiting_only)
        )

    async def retry(self, job_id: UUID) -> bool:
        return await self._write(lambda transaction: interventions.retry(transaction, job_id))

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        return await self._write(
            lambda transaction: enqueueing.requeue(transaction, job_id, new_id, arguments, once)
        )

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return await self._read(lambda connection: reading.requeued(connection, job_ids))

    async def get(self, job_id: UUID) -> Job | None:
        return await self._read(lambda connection: reading.get(connection, job_id))

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return await self._read(lambda connection: reading.attempts(connection, job_id))

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await self._read(lambda connection: reading.page(connection, filter, limit, after))

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return await self._read(lambda connection: reading.counts(connection, tenant))

    async def queues(self) -> Sequence[QueueSeen]:
        now = self._database.now()
        return await self._read(lambda connection: queues.queues(connection, now))

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        return await self._write(lambda transaction: queues.pause(transaction, queue, by, because))

    async def resume(self, queue: str) -> bool:
        return await self._write(lambda transaction: queues.resume(transaction, queue))

    async def cap(self, queue: str, running_max: int | None) -> None:
        await self._write(lambda transaction: queues.cap(transaction, queue, running_max))

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        return await self._write(lambda transaction: breakers.strike(transaction, strikes))

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        await self._write(lambda transaction: breakers.open_breaker(transaction, key, by, because))

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        return await self._write(
            lambda transaction: breakers.close_breaker(transaction, key, forget, by_hand)
        )

    async def hold(self, limit: int) -> Holding:
        return await self._write(lambda transaction: breakers.hold(transaction, limit))

    async def claim_probes(self, claim: Claim) -> Sequence[Claimed]:
        return await self._write(lambda transaction: leasing.claim_probes(transaction, claim))

    async def breakers(self) -> Sequence[BreakerSeen]:
        now = self._database.now()
        return await self._read(lambda connection: breakers.breakers(connection, now))

    async def pulse(self, newest_max: int) -> Pulse:
        now = self._database.now()
        return await self._read(lambda connection: reading.pulse(connection, newest_max, now))

    async def greet(self, worker: NewWorker, load: Load) -> None:
        await self._write(lambda transaction: presence.greet(transaction, worker, load))

    async def see(self, worker_id: str, load: Load) -> bool:
        return await self._write(lambda transaction: presence.see(transaction, worker_id, load))

    async def leave(self, worker_id: str) -> None:
        await self._write(lambda transaction: presence.leave(transaction, worker_id))

    async def workers(self) -> Sequence[WorkerSeen]:
        now = self._database.now()
        return await self._read(lambda connection: presence.workers(connection, now))

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        now = self._database.now()
        return await self._read(lambda connection: presence.circumstances(connection, job_id, now))

    async def vitals(self, patience: Patience) -> Vitals:
        wakeups = await health.try_wakeup(self._signals, self._seam)
        examiner = health.Examiner(self._database, self._seam, patience)
        thread = self._seam.threads("holdfast-examiner", 1)
        try:
            return await asyncio.wrap_future(thread.submit(partial(examiner.read, wakeups)))
        except Exception as error:
            raise self._database.translated(error) from error
        finally:
            thread.close()

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        until = after(self._database.now(), within_seconds)
        return await self._read(
            lambda connection: reading.awaited(connection, names, queues, until)
        )

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        now = self._database.now()
        return await self._read(
            lambda connection: reading.unknown_names(connection, names, queues, now)
        )

    async def listen(self, heard: Heard) -> Listener | None:
        return self._signals.listen(heard)

    async def _write(self, action: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        check_not_holding(self._database.path)
        return await self._writer.run(action)

    async def _read(self, action: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        return await self._reader.run(action)
