"""The store on SQLite. `holdfast.stores.protocol` says what each verb promises."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar
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
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.scope import scoped_tenant
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import AfterCommit, Canceled, Claim, Enrolled
from holdfast.stores.sqlite import (
    breakers,
    claim,
    diagnosis,
    enqueue,
    jobs,
    leases,
    queries,
    queues,
    reclaim,
    settle,
    upkeep,
    workers,
)
from holdfast.stores.sqlite.connections import Database
from holdfast.stores.sqlite.enrolled import SqliteEnrolled
from holdfast.stores.sqlite.rows import after, to_time
from holdfast.stores.sqlite.threads import ReadThread, Transaction, WriteThread
from holdfast.stores.sqlite.transaction import check_not_writing, open_connection, writing
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Heard, Listener, Wakeup

T = TypeVar("T")
P = ParamSpec("P")


class SqliteStore:
    """Keep jobs in an SQLite file. There is no server, so this machine's clock decides."""

    def __init__(
        self,
        path: str,
        seam: Seam,
        *,
        synchronous: str = "FULL",
        retention: Retention = A_WEEK,
        read_only: bool = False,
    ) -> None:
        self._seam = seam
        self._database = Database(path, seam, synchronous, retention, read_only=read_only)
        self._signals = LocalSignals(path)
        self._turns = count()
        self._reclaimer = reclaim.Reclaimer(seam)
        self._writer: WriteThread | None = None
        self._reader: ReadThread | None = None

    async def open(self) -> None:
        """Connect. Create the file if it is new, and migrate it if its schema is older; but to read
        only, change nothing."""
        if self._writer is not None:
            return
        database = self._database
        self._writer = WriteThread(
            self._seam, "holdfast-writer", database, database.connect_writer, self._signals.send
        )
        self._reader = ReadThread(self._seam, "holdfast-reader", database, database.connect_reader)
        try:
            # The first use of a connection checks the schema.
            await (self._read if database.read_only else self._write)(lambda _: None)
        except asyncio.CancelledError:
            self.abandon()  # without waiting for a file that others keep locked
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for thread in self._take_threads():
            await thread.close()
        self._signals.close()

    def abandon(self) -> None:
        for thread in self._take_threads():
            thread.abandon()
        self._signals.close()

    async def migrate(self) -> Sequence[str]:
        if self._writer is not None:
            return []
        await self.open()
        await self.close()
        return self._database.steps_taken

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        return await self._write(enqueue.enqueue, jobs)

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        return await self._write(claim.claim, request, next(self._turns))

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await self._write(claim.claim_by_id, job_id, worker, lease_seconds)

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await self._write(settle.renew, leases, lease_seconds)

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await self._write(settle.release_strays, worker, known, limit)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._write(settle.settle, settlements)

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        if dead_worker is not None:
            return await self._write(reclaim.reclaim_worker, limit, dead_worker, reason)
        return await self._write(self._reclaimer.reclaim, limit, self._seam.monotonic())

    async def cancel(
        self,
        job_ids: Sequence[UUID],
        *,
        waiting_only: bool = False,
        by: str | None = None,
        because: str | None = None,
    ) -> Sequence[Canceled]:
        return await self._write(jobs.cancel, job_ids, waiting_only, cancel_reason(by, because))

    async def retry(self, job_id: UUID) -> bool:
        return await self._write(jobs.retry, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        return await self._write(jobs.requeue, job_id, new_id, arguments, once)

    async def get(self, job_id: UUID) -> Job | None:
        return await self._read(queries.get, job_id, scoped_tenant())

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await self._read(queries.page, filter, limit, after)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return await self._read(queries.counts, tenant)

    async def now(self) -> datetime:
        return to_time(self._database.now())

    async def queues(self) -> Sequence[QueueStatus]:
        return await self._read(queues.queues, self._database.now())

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        until = after(self._database.now(), within_seconds)
        return await self._read(queries.awaited, names, queues, until)

    def connection(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        return open_connection(self._seam, self._database, read_only)

    def enrol(self, driver: Driver, after_commit: AfterCommit | None = None) -> Enrolled:
        return SqliteEnrolled(driver, self._database, after_commit)

    def writing(self) -> AbstractContextManager[None]:
        return writing(self._database.path)

    async def standing(self, job_id: UUID) -> Standing | None:
        return await self._write(settle.standing, job_id)

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        return await self._write(claim.claim_suspect, request)

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        return await self._read(queries.suspects, names, queues, self._database.now())

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        return await self._write(queues.pause, queue, by, because)

    async def is_paused(self, queue: str) -> bool:
        return await self._read(queues.is_paused, queue)

    async def resume(self, queue: str) -> bool:
        return await self._write(queues.resume, queue)

    async def cap(self, queue: str, running_max: int | None) -> None:
        await self._write(queues.cap, queue, running_max)

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        return await self._write(breakers.strike, strikes)

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        await self._write(breakers.open_breaker, key, by, because)

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        return await self._write(breakers.close_breaker, key, forget, by_hand)

    async def park(self, limit: int) -> Parking:
        return await self._write(breakers.park, limit)

    async def claim_probes(self, request: Claim) -> Sequence[Claimed]:
        return await self._write(claim.claim_probes, request)

    async def breakers(self) -> Sequence[BreakerStatus]:
        return await self._read(breakers.breakers, self._database.now())

    async def register(self, worker: NewWorker, load: Load) -> None:
        await self._write(workers.register, worker, load)

    async def heartbeat(self, worker_id: str, load: Load) -> bool:
        return await self._write(workers.heartbeat, worker_id, load)

    async def deregister(self, worker_id: str) -> None:
        await self._write(workers.deregister, worker_id)

    async def workers(self) -> Sequence[WorkerStatus]:
        return await self._read(workers.workers, self._database.now())

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        now = self._database.now()
        return await self._read(diagnosis.circumstances, job_id, scoped_tenant(), now)

    async def vitals(self, patience: Patience) -> Vitals:
        return await diagnosis.vitals(self._database, self._signals, self._seam, patience)

    async def pulse(self, newest_max: int) -> Pulse:
        return await self._read(queries.pulse, newest_max, self._database.now())

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        return await self._read(queries.unknown_names, names, queues, self._database.now())

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return await self._read(queries.attempts, job_id)

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return await self._read(queries.requeued, job_ids)

    async def tidy(self, limit: int) -> int:
        done, refused = await self._write(upkeep.tidy, limit)
        if refused is not None:
            raise self._database.translated(refused) from refused
        return done

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        return await self._write(settle.progress, lease, progress)

    async def leased(self, lease: Lease) -> Claimed | None:
        return await self._read(leases.leased, lease)

    async def leases_of(self, workers: Sequence[str]) -> Mapping[str, Sequence[Claimed]]:
        return await self._read(leases.leases_of, workers)

    async def assign(self, owners: Mapping[Lease, str]) -> Sequence[Lease]:
        return await self._write(leases.assign, owners)

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        return await self._read(queries.changed, known, scoped_tenant())

    async def counts_up_to(self, jobs_max: int, tenant: str | None = None) -> CappedCounts:
        return await self._read(queries.counts_up_to, jobs_max, tenant)

    async def listen(self, heard: Heard) -> Listener | None:
        return self._signals.listen(heard)

    async def wake(self, queue: str) -> None:
        self._signals.send([Wakeup(queue=queue)])

    def _take_threads(self) -> list[WriteThread | ReadThread]:
        threads = [thread for thread in (self._writer, self._reader) if thread is not None]
        self._writer = self._reader = None
        return threads

    async def _write(
        self, action: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._writer is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        check_not_writing(self._database.path)
        return await self._writer.run(lambda transaction: action(transaction, *args, **kwargs))

    async def _read(
        self,
        action: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._reader is None:
            raise StoreUnavailable(f"the store on {self._database.path} is not open")
        return await self._reader.run(lambda connection: action(connection, *args, **kwargs))
