"""The store on SQLite. What each verb promises stands in `holdfast.stores.protocol`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.errors import StoreUnavailable
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
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Canceled, Claim, Enrolled
from holdfast.stores.sqlite import (
    breakers,
    claim,
    diagnosis,
    enqueue,
    jobs,
    queries,
    queues,
    reclaim,
    settle,
    upkeep,
    workers,
)
from holdfast.stores.sqlite.connections import Database
from holdfast.stores.sqlite.enrolled import SqliteEnrolled
from holdfast.stores.sqlite.rows import after
from holdfast.stores.sqlite.threads import ReadThread, Transaction, WriteThread
from holdfast.stores.sqlite.transaction import check_not_writing, open_connection, writing
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Heard, Listener

T = TypeVar("T")


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
        self._reclaimer = reclaim.Reclaimer(seam)
        self._writer: WriteThread | None = None
        self._reader: ReadThread | None = None

    async def open(self) -> None:
        """Connect; a file that is new or has an older schema is brought to this code's version."""
        if self._writer is not None:
            return
        database = self._database
        self._writer = WriteThread(
            self._seam, "holdfast-writer", database, database.connect_writer, self._signals.send
        )
        self._reader = ReadThread(self._seam, "holdfast-reader", database, database.connect_reader)
        try:
            await self._write(lambda transaction: None)
        except asyncio.CancelledError:
            self.abandon()  # a file that others keep locked keeps nobody from giving up
            raise
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
        threads = self._writer, self._reader
        self._writer = self._reader = None
        for thread in threads:
            if thread is not None:
                thread.abandon()
        self._signals.close()

    async def migrate(self) -> Sequence[str]:
        if self._writer is not None:
            return []
        await self.open()
        await self.close()
        return self._database.steps_taken

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        return await self._write(lambda transaction: enqueue.enqueue(transaction, jobs))

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        turn = next(self._turns)
        return await self._write(lambda transaction: claim.claim(transaction, request, turn))

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await self._write(
            lambda transaction: claim.claim_by_id(transaction, job_id, worker, lease_seconds)
        )

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await self._write(
            lambda transaction: settle.renew(transaction, leases, lease_seconds)
        )

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await self._write(
            lambda transaction: settle.release_strays(transaction, worker, known, limit)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._write(lambda transaction: settle.settle(transaction, settlements))

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        if dead_worker is not None:
            return await self._write(
                lambda transaction: reclaim.reclaim_worker(transaction, limit, dead_worker, reason)
            )
        asked_at = self._seam.monotonic()
        return await self._write(
            lambda transaction: self._reclaimer.reclaim(transaction, limit, asked_at)
        )

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        return await self._write(
            lambda transaction: jobs.cancel(transaction, job_ids, waiting_only)
        )

    async def retry(self, job_id: UUID) -> bool:
        return await self._write(lambda transaction: jobs.retry(transaction, job_id))

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        return await self._write(
            lambda transaction: jobs.requeue(transaction, job_id, new_id, arguments, once)
        )

    async def get(self, job_id: UUID) -> Job | None:
        return await self._read(lambda connection: queries.get(connection, job_id))

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await self._read(lambda connection: queries.page(connection, filter, limit, after))

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return await self._read(lambda connection: queries.counts(connection, tenant))

    async def queues(self) -> Sequence[QueueStatus]:
        now = self._database.now()
        return await self._read(lambda connection: queues.queues(connection, now))

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        until = after(self._database.now(), within_seconds)
        return await self._read(
            lambda connection: queries.awaited(connection, names, queues, until)
        )

    def connection(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        return open_connection(self._seam, self._database, read_only)

    def enrol(self, driver: Driver) -> Enrolled:
        return SqliteEnrolled(driver, self._database)

    def writing(self) -> AbstractContextManager[None]:
        return writing(self._database.path)

    async def standing(self, job_id: UUID) -> Standing | None:
        return await self._write(lambda transaction: settle.standing(transaction, job_id))

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        return await self._write(lambda transaction: claim.claim_suspect(transaction, request))

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        now = self._database.now()
        return await self._read(lambda connection: queries.suspects(connection, names, queues, now))

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

    async def park(self, limit: int) -> Parking:
        return await self._write(lambda transaction: breakers.park(transaction, limit))

    async def claim_probes(self, request: Claim) -> Sequence[Claimed]:
        return await self._write(lambda transaction: claim.claim_probes(transaction, request))

    async def breakers(self) -> Sequence[BreakerStatus]:
        now = self._database.now()
        return await self._read(lambda connection: breakers.breakers(connection, now))

    async def register(self, worker: NewWorker, load: Load) -> None:
        await self._write(lambda transaction: workers.register(transaction, worker, load))

    async def heartbeat(self, worker_id: str, load: Load) -> bool:
        return await self._write(
            lambda transaction: workers.heartbeat(transaction, worker_id, load)
        )

    async def deregister(self, worker_id: str) -> None:
        await self._write(lambda transaction: workers.deregister(transaction, worker_id))

    async def workers(self) -> Sequence[WorkerStatus]:
        now = self._database.now()
        return await self._read(lambda connection: workers.workers(connection, now))

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        now = self._database.now()
        return await self._read(lambda connection: diagnosis.circumstances(connection, job_id, now))

    async def vitals(self, patience: Patience) -> Vitals:
        return await diagnosis.vitals(self._database, self._signals, self._seam, patience)

    async def pulse(self, newest_max: int) -> Pulse:
        now = self._database.now()
        return await self._read(lambda connection: queries.pulse(connection, newest_max, now))

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        now = self._database.now()
        return await self._read(
            lambda connection: queries.unknown_names(connection, names, queues, now)
        )

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return await self._read(lambda connection: queries.attempts(connection, job_id))

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return await self._read(lambda connection: queries.requeued(connection, job_ids))

    async def tidy(self, limit: int) -> int:
        done, refused = await self._write(lambda transaction: upkeep.tidy(transaction, limit))
        if refused is not None:
            raise self._database.translated(refused) from refused
        return done

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        return await self._write(lambda transaction: settle.progress(transaction, lease, progress))

    async def listen(self, heard: Heard) -> Listener | None:
        return self._signals.listen(heard)

    async def _write(self, action: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        check_not_writing(self._database.path)
        return await self._writer.run(action)

    async def _read(self, action: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        return await self._reader.run(action)
