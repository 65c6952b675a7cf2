"""The Holdfast object: the one place that wires everything."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from logging import WARNING
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from holdfast.backoff import Backoff
from holdfast.context import Context
from holdfast.definition import (
    Call,
    Definition,
    JobDecorator,
    JobFunction,
    JobOptions,
    define,
)
from holdfast.domain import codec
from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    HoldfastError,
    JobFailed,
    JobNotFound,
    ResultTimeout,
)
from holdfast.domain.health.findings import Examination
from holdfast.domain.health.vitals import Patience
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Job, NewJob, Reclaimed
from holdfast.domain.limits import DELAY_SECONDS_MAX, ENQUEUE_BATCH_MAX
from holdfast.domain.secrets import shown_url
from holdfast.domain.states import State
from holdfast.examining import STUCK_SWEEPS, examine
from holdfast.loops import Loops
from holdfast.maintenance.reclaiming import take_back
from holdfast.observability import logs, tracing
from holdfast.observability.exposition import DatabaseSeen, Look, expose, load_client
from holdfast.observability.metrics import Metrics
from holdfast.seam import Seam
from holdfast.seeing import Seeing
from holdfast.settings import DEFAULT_URL, read_settings
from holdfast.steering import check_id
from holdfast.stores.foreign import Driver, Foreign, recognise_async, recognise_sync, run_now
from holdfast.stores.opening import absolute_url, make_store, without_driver
from holdfast.stores.protocol import Store
from holdfast.tables import Tables, check_tables
from holdfast.transaction import transaction
from holdfast.worker import resources
from holdfast.worker.children.pool import make_children
from holdfast.worker.events import Events
from holdfast.worker.exposing import exposed
from holdfast.worker.origin import check_not_loading
from holdfast.worker.processes import Birth, Launch, find_launch
from holdfast.worker.report import WorkerReport
from holdfast.worker.slots import Queues, Slots, queue_caps
from holdfast.worker.spelling import tell_unknown_queues
from holdfast.worker.supervisor import Supervisor
from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast(Seeing):
    """Jobs on one database: define them, enqueue them, look at them, run them.

    Nothing is connected before the first use. An object may be used from several event loops and
    threads, one after the other or at once.
    """

    def __init__(
        self, url: str | None = None, *, seam: Seam | None = None, **settings: Any
    ) -> None:
        self.settings = read_settings(settings)
        given_url = url or os.environ.get("HOLDFAST_DATABASE_URL") or DEFAULT_URL
        self._url = without_driver(given_url)
        self._seam = seam or Seam()
        self._ids = IdMaker(self._seam.random)
        self._definitions: dict[str, Definition] = {}
        self._resources: dict[str, resources.ResourceFunction] = {}
        self._tables: list[Tables] = []
        self._loops = Loops(self._seam, self._open)
        self._metrics = Metrics()
        self._look = Look(self._see, self._seam.monotonic)
        self._folder = os.path.abspath("")  # a handler may go elsewhere; a relative file may not
        self._make_store()  # a bad URL is told at once

    @property
    def url_shown(self) -> str:
        """The database's address without its password."""
        return shown_url(self._url)

    @property
    def _database(self) -> str:
        return absolute_url(self._url, self._folder)

    def _make_store(self) -> Store:
        return make_store(self._database, self._seam, self.settings)

    @property
    def names(self) -> list[str]:
        return sorted(self._definitions)

    @overload
    def job(self, function: Callable[Concatenate[Context, P], Any], /) -> JobFunction[P]: ...

    @overload
    def job(self, function: Callable[P, Any], /) -> JobFunction[P]: ...

    @overload
    def job(self, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make a function, async or not, a job: `@hf.job` or `@hf.job(queue="images")`.

        It gets the `Context` first if its first parameter is annotated so, or is named `ctx`.
        """
        if function is None:
            return lambda decorated: self._define(decorated, options)
        return self._define(function, options)

    def _define(self, function: Callable[..., Any], options: Mapping[str, Any]) -> JobFunction[...]:
        definition, defaults = define(function, options, self.settings.max_attempts)
        names = (definition.name, *definition.aliases)
        for name in names:
            codec.check_name("job name", name)
            if name in self._definitions or names.count(name) > 1:
                raise ConfigurationError(f"there is a job named {name!r} already")
        self._definitions.update(dict.fromkeys(names, definition))
        return JobFunction(self, definition, defaults)

    def resource(self, function: resources.ResourceFunction) -> resources.ResourceFunction:
        """Make what a function yields or returns available as `ctx.resources[its name]`.

        Workers call it at their start; what follows its `yield` is run at their end.
        """
        name = function.__name__
        if name in self._resources:
            raise ConfigurationError(f"there is a resource named {name!r} already")
        self._resources[name] = function
        return function

    async def enqueue_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """Enqueue all or none: in a transaction of its own, or in that of the given connection."""
        with tracing.enqueuing() as span:
            now = self._seam.now()
            jobs = self._new_jobs(calls, span, now)
            if connection is None:
                return await self._enqueue(jobs, now)
            foreign = recognise_async(connection, "enqueue_sync or enqueue_many_sync")
            return await self._enqueue_through(foreign, jobs, now)

    def enqueue_many_sync(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """`enqueue_many` for code without an event loop."""
        with tracing.enqueuing() as span:
            now = self._seam.now()
            jobs = self._new_jobs(calls, span, now)
            if connection is None:
                return self._loops.run_sync(self._enqueue(jobs, now))
            foreign = recognise_sync(connection, "await enqueue(...) or await enqueue_many(...)")
            return run_now(self._enqueue_through(foreign, jobs, now))

    def tables(self, name: str, package: str) -> Tables:
        """Declare an application's own tables, which lie in the folder `sql` of its package.

        `migrate` makes them together with the engine's; on SQLite the first use does.
        """
        if self._loops.have_stores:
            raise ConfigurationError(f"declare the tables of {name} before the database is used")
        if any(tables.name == name for tables in self._tables):
            raise ConfigurationError(f"there are tables of {name!r} already")
        tables = Tables(name, package)
        self._tables.append(tables)
        return tables

    @asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[Any]:
        """A transaction on the jobs' own database: committed at the end, rolled back by an error.

        The block gets a connection with `execute`, `fetch`, `fetchrow` and `fetchval`, on SQLite
        as on PostgreSQL. Jobs are enqueued in it with `options(connection=...)`.
        """
        async with transaction(await self._store(), read_only=read_only) as connection:
            yield connection

    async def get(self, job_id: UUID) -> Job:
        check_id(job_id)
        job = await (await self._store()).get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def result(self, job_id: UUID, timeout_seconds: float | None = None) -> Any:
        """Wait for the job's end; answer its result, or raise JobFailed or ResultTimeout."""
        if timeout_seconds is not None and math.isnan(timeout_seconds):
            raise BadArguments("timeout_seconds must be a number, not NaN")
        polling = Backoff(self._seam, 0.01, 0.5)
        job = await self.get(job_id)
        try:
            async with asyncio.timeout(timeout_seconds):
                while not job.state.ended:
                    await polling.wait()
                    job = await self.get(job_id)
        except TimeoutError:
            raise ResultTimeout(f"job {job_id} had not ended after {timeout_seconds:g} s") from None
        if job.state is not State.SUCCEEDED:
            raise JobFailed(job)
        return job.result

    async def metrics(self) -> str:
        """What this object counts and what its database holds, as Prometheus reads it.

        Counting begins with the first call, or with a worker that serves metrics.
        """
        load_client()
        self._metrics.counting = True
        seen = await self._look.take()
        return expose(self._metrics.snapshot(), seen)

    async def _see(self) -> DatabaseSeen:
        return DatabaseSeen(
            queues=await self.queues(),
            breakers=await self.breakers(),
            workers=await self.workers(),
        )

    async def examine(self, *, transaction_seconds: float = 300.0) -> Examination:
        """Say how the database and what works on it are: findings, the worst first.

        Nothing is changed, and a database that can't be reached is a finding, too. A transaction
        that holds back vacuum is told of when it is open for longer than `transaction_seconds`.
        """
        if not 0 <= transaction_seconds <= DELAY_SECONDS_MAX:
            raise BadArguments(
                f"transaction_seconds must be 0 to {DELAY_SECONDS_MAX}, not {transaction_seconds}"
            )
        patience = Patience(
            transaction_seconds=transaction_seconds,
            stuck_seconds=STUCK_SWEEPS * self.settings.reclaim_seconds,
        )
        timeouts = {each.name: each.timeout_seconds for each in self._definitions.values()}
        return await examine(self._make_store(), self.url_shown, patience, timeouts)

    async def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date; answer the steps taken."""
        store = self._make_store()
        try:
            done = list(await store.migrate())
            if self._tables:
                async with transaction(store, read_only=False) as connection:
                    for tables in self._tables:
                        done += await tables.migrate(connection)
            return done
        finally:
            await store.close()

    async def run_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: Queues | None = None,
        until_empty: bool = False,
    ) -> WorkerReport:
        """Run jobs until SIGTERM or SIGINT, or until cancelled.

        With `until_empty`, until nothing runs and nothing becomes due within one lease length.
        The signals are left alone if somebody else (a web server, say) handles them. Either way
        what runs is finished within `grace_seconds` or released; the second signal hurries.
        """
        return await self._run_worker(self._slots(concurrency, queues), self._horizon(until_empty))

    async def run_due(self, concurrency: int | None = None) -> WorkerReport:
        """Run what is due now, and what becomes due meanwhile, and come back: for tests."""
        return await self._run_worker(self._slots(concurrency, None), 0.0)

    async def run_launched(
        self,
        launch: Launch,
        birth: Birth | None,
        *,
        concurrency: int | None = None,
        queues: Queues | None = None,
        until_empty: bool = False,
    ) -> WorkerReport:
        """`run_worker` for a process that is nothing but a worker: `holdfast worker`."""
        if birth and birth.queues is not None:
            queues = birth.queues
        slots = self._slots(1 if birth and birth.suspects_only else concurrency, queues)
        return await self._run_worker(slots, self._horizon(until_empty), launch, birth)

    async def run_processes(
        self,
        launch: Launch,
        processes: int,
        *,
        concurrency: int | None = None,
        queues: str | None = None,
        until_empty: bool = False,
    ) -> bool:
        """Run several such processes until SIGTERM or SIGINT; answer whether all ended well."""
        check_not_loading()
        slots = self._slots(concurrency, queues)  # what can't be right is told before they start
        options = ["--concurrency", str(slots.concurrency)]
        options += ["--queues", queues] if queues else []
        options += ["--until-empty"] if until_empty else []
        async with self._exposed(None) as metrics_socket:
            supervisor = Supervisor(
                launch=launch.with_options(*options).reporting_to(metrics_socket),
                count=processes,
                until_empty=until_empty,
                grace_seconds=self.settings.grace_seconds,
                seam=self._seam,
                take_back=self._take_back,
                events=Events(None, self._metrics, self._seam),
            )
            return await supervisor.run()

    def _exposed(self, birth: Birth | None) -> AbstractAsyncContextManager[str | None]:
        """Give metrics out, if somebody wants them; answer where processes report theirs."""
        seam, settings = self._seam, self.settings
        return exposed(self._metrics, self.metrics, self.close, settings, birth, seam)

    async def _take_back(self, worker_id: str, reason: str) -> Sequence[Reclaimed] | None:
        """Free what a worker had that died, on a connection for this moment. Without it the leases
        run out: whatever is wrong with the database, the other workers go on."""
        try:
            store = await self._open()
        except HoldfastError as error:
            logs.event(WARNING, "sweep_failed", str(error))
            return None
        try:
            return await take_back(store, worker_id, reason)
        finally:
            await store.close()

    @asynccontextmanager
    async def borrowed(self, url: str, seam: Seam) -> AsyncIterator[None]:
        """Stand on another database and machine until the end of the block: for tests."""
        own = self._url, self._seam, self._loops
        self._url, self._seam, self._loops = url, seam, Loops(seam, self._open)
        try:
            yield
        finally:
            await asyncio.to_thread(self.close_sync)
            await self.close()
            self._url, self._seam, self._loops = own

    def _slots(self, concurrency: int | None, queues: Queues | None) -> Slots:
        if not self._definitions:
            raise ConfigurationError("there are no jobs: define one with @hf.job first")
        limit = self.settings.concurrency if concurrency is None else concurrency
        return Slots(limit, queue_caps(queues))

    def _horizon(self, until_empty: bool) -> float | None:
        return self.settings.lease_seconds if until_empty else None

    def _find_launch(self) -> Launch | None:
        return find_launch(self, [each.function for each in self._definitions.values()])

    async def _run_worker(
        self,
        slots: Slots,
        horizon_seconds: float | None,
        launch: Launch | None = None,
        birth: Birth | None = None,
    ) -> WorkerReport:
        check_not_loading()
        declared = {each.queue for each in self._definitions.values()}
        making = make_children(
            self, self._database, self._definitions, self.settings, self._seam, self._metrics
        )
        async with (
            self._exposed(birth) as metrics_socket,
            making as children,
            resources.opened(self._resources) as made,
        ):
            await tell_unknown_queues(await self._store(), slots.queues, declared)
            worker = Worker(
                birth=birth,
                owns_process=launch is not None,
                find_launch=lambda: launch or self._find_launch(),
                metrics_socket=metrics_socket,
                store=await self._store(),
                make_keepers_store=self._make_store,
                definitions=self._definitions,
                resources=made,
                settings=self.settings,
                seam=self._seam,
                metrics=self._metrics,
                slots=slots,
                children=children,
                horizon_seconds=horizon_seconds,
            )
            async with worker.signals() if self._seam.signals_are_free() else nullcontext():
                return await worker.run()

    def lend_to_child(
        self, url: str
    ) -> tuple[Mapping[str, Definition], Mapping[str, resources.ResourceFunction]]:
        """Give out what a child process runs, which stands on the database of its worker."""
        self._url = url
        return self._definitions, self._resources

    async def close(self) -> None:
        """Close what this event loop opened; the object can be used again afterwards."""
        await self._loops.close()

    def close_sync(self) -> None:
        """Close what `enqueue_sync` and the like opened."""
        self._loops.close_sync()

    async def __aenter__(self) -> Holdfast:
        await self._store()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _store(self) -> Store:
        return await self._loops.store()

    async def _open(self) -> Store:
        check_not_loading()
        store = self._make_store()
        try:
            await store.open()
            if self._tables:
                may_migrate = self._database.startswith("sqlite:")
                await check_tables(store, self._tables, may_migrate=may_migrate)
        except BaseException:
            await store.close()
            raise
        return store

    def new_id(self) -> UUID:
        """Make an id for a job before it is enqueued: `resize.options(id=...)`."""
        return self._ids.make(_milliseconds(self._seam.now()))

    def _new_jobs(
        self, calls: Sequence[Call], span: tracing.Enqueuing, now: datetime
    ) -> list[NewJob]:
        if len(calls) > ENQUEUE_BATCH_MAX:
            raise ConfigurationError(
                f"{len(calls)} jobs in one call are more than {ENQUEUE_BATCH_MAX}"
            )
        kept_seconds = self.settings.keys_kept_seconds
        ids = self._ids.make_many(_milliseconds(now), len(calls))
        jobs = [
            call.new_job(job_id, kept_seconds, span.trace)
            for call, job_id in zip(calls, ids, strict=True)
        ]
        span.tell(jobs)
        return jobs

    async def _enqueue(self, jobs: Sequence[NewJob], now: datetime) -> list[Job]:
        if not jobs:
            return []
        store = await self._loops.store()
        receipts = await store.enqueue(jobs)
        if self._metrics.counting:
            self._metrics.enqueued(jobs, receipts)
        return [
            job.enqueued(receipt.id, now) if receipt.created else await self.get(receipt.id)
            for job, receipt in zip(jobs, receipts, strict=True)
        ]

    async def _enqueue_through(
        self, foreign: Foreign, jobs: Sequence[NewJob], now: datetime
    ) -> list[Job]:
        """Enqueue in a transaction of the caller's, where what it did before can be seen."""
        # It need not be open: the connection is the caller's.
        store = self._make_store()

        async def enqueue(driver: Driver) -> list[Job]:
            await driver.join()
            enrolled = store.enrol(driver)
            found = []
            for job, receipt in zip(jobs, await enrolled.enqueue(jobs), strict=True):
                known = None if receipt.created else await enrolled.get(receipt.id)
                if known is None and not receipt.created:
                    raise JobNotFound(receipt.id)
                found.append(known or job.enqueued(receipt.id, now))
            return found

        return await foreign.run(enqueue) if jobs else []


def _milliseconds(now: datetime) -> int:
    return int(now.timestamp() * 1000)
