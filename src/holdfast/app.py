"""The Holdfast object: the one place that wires everything."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from holdfast.context import Context
from holdfast.domain import codec
from holdfast.domain.diagnosis.findings import Examination
from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    JobFailed,
    ResultTimeout,
)
from holdfast.domain.job import Job, Reclaimed
from holdfast.domain.overview import Overview
from holdfast.domain.secrets import shown_url
from holdfast.domain.states import State
from holdfast.enqueuer import Enqueuer
from holdfast.job_function import (
    Call,
    Definition,
    JobDecorator,
    JobFunction,
    JobOptions,
    define,
)
from holdfast.observability import tracing
from holdfast.observability.exposition import DatabaseStatus, Look, expose, load_client
from holdfast.observability.metrics import Metrics
from holdfast.operations.breakers import Breakers
from holdfast.operations.dead import Dead
from holdfast.operations.desk import Desk
from holdfast.operations.diagnosis import examine, make_patience, overview
from holdfast.operations.jobs import Jobs
from holdfast.operations.queues import Queues
from holdfast.operations.workers import Workers
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.loops import Loops
from holdfast.runtime.seam import Seam
from holdfast.settings import DEFAULT_URL, read_settings
from holdfast.stores.protocol import Store, Transactions, WorkerPresence, capability, require
from holdfast.stores.registry import absolute_url, make_store, without_driver
from holdfast.transactions.drivers import recognize_async, recognize_sync, run_now
from holdfast.transactions.tables import Tables, check_tables
from holdfast.transactions.transaction import transaction
from holdfast.worker import resources
from holdfast.worker.events import Events
from holdfast.worker.metrics_export import exposed
from holdfast.worker.processes.launch import Birth, Launch, find_launch
from holdfast.worker.processes.origin import check_not_loading
from holdfast.worker.processes.pool import make_children
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.reclaim import take_back_in_time
from holdfast.worker.report import WorkerReport
from holdfast.worker.slots import QueueChoice, Slots, queue_caps
from holdfast.worker.spelling import tell_unknown_queues
from holdfast.worker.stop import StopRequest
from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """Jobs on one database: define them, enqueue them, look at them, run them.

    `jobs`, `dead`, `queues`, `breakers` and `workers` are what operators do, by the nouns of the
    command line. Nothing is connected before the first use. An object may be used from several
    event loops and threads, one after the other or at once.
    """

    def __init__(
        self, url: str | None = None, *, seam: Seam | None = None, **settings: Any
    ) -> None:
        self.settings = read_settings(settings)
        given_url = url or os.environ.get("HOLDFAST_DATABASE_URL") or DEFAULT_URL
        self._url = without_driver(given_url)
        self._seam = seam or Seam()
        self._definitions: dict[str, Definition] = {}
        self._resources: dict[str, resources.ResourceFunction] = {}
        self._tables: list[Tables] = []
        self._loops = Loops(self._seam, self._open)
        self._metrics = Metrics()
        self._look = Look(self._see, self._seam.monotonic)
        self._folder = os.path.abspath("")  # a handler may go elsewhere; a relative file may not
        self._make_store()  # a bad URL is told at once
        desk = Desk(self._store, lambda: self._seam, self.new_id, self._definitions, self.settings)
        self.jobs = Jobs(desk)
        self._enqueuer = Enqueuer(desk, self._make_store, self._metrics, self._seam.random)
        self.dead = Dead(self.jobs)
        self.queues = Queues(desk, self.jobs)
        self.breakers = Breakers(desk)
        self.workers = Workers(desk)

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
                raise ConfigurationError(f"a job named {name!r} already exists")
        self._definitions.update(dict.fromkeys(names, definition))
        return JobFunction(self, definition, defaults)

    def resource(self, function: resources.ResourceFunction) -> resources.ResourceFunction:
        """Make what a function yields or returns available as `ctx.resources[its name]`.

        Workers call it at their start; what follows its `yield` is run at their end.
        """
        name = function.__name__
        if name in self._resources:
            raise ConfigurationError(f"a resource named {name!r} already exists")
        self._resources[name] = function
        return function

    async def enqueue_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """Enqueue all or none: in a transaction of its own, or in that of the given connection."""
        with tracing.enqueuing() as span:
            now = self._seam.now()
            jobs = self._enqueuer.new_jobs(calls, span, now)
            if connection is None:
                return await self._enqueuer.enqueue(jobs, now)
            foreign = recognize_async(connection, "enqueue_sync or enqueue_many_sync")
            return await self._enqueuer.enqueue_through(foreign, jobs, now)

    def enqueue_many_sync(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """`enqueue_many` for code without an event loop."""
        with tracing.enqueuing() as span:
            now = self._seam.now()
            jobs = self._enqueuer.new_jobs(calls, span, now)
            if connection is None:
                return self._loops.run_sync(self._enqueuer.enqueue(jobs, now))
            foreign = recognize_sync(connection, "await enqueue(...) or await enqueue_many(...)")
            return run_now(self._enqueuer.enqueue_through(foreign, jobs, now))

    def tables(self, name: str, package: str) -> Tables:
        """Declare an application's own tables, which lie in the folder `sql` of its package.

        `migrate` makes them together with the engine's; on SQLite the first use does.
        """
        if self._loops.have_stores:
            raise ConfigurationError(f"declare the tables of {name} before the database is used")
        if any(tables.name == name for tables in self._tables):
            raise ConfigurationError(f"tables of {name!r} are already declared")
        tables = Tables(name, package)
        self._tables.append(tables)
        return tables

    @asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[Any]:
        """A transaction on the jobs' own database: committed at the end, rolled back by an error.

        The block gets a connection with `execute`, `fetch`, `fetchrow` and `fetchval`, on SQLite
        as on PostgreSQL. Jobs are enqueued in it with `options(connection=...)`.
        """
        store = require(await self._store(), Transactions, "give out transactions")
        async with transaction(store, read_only=read_only) as connection:
            yield connection

    async def get(self, job_id: UUID) -> Job:
        return await self.jobs.get(job_id)

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

    async def _see(self) -> DatabaseStatus:
        is_told = capability(await self._store(), WorkerPresence) is not None
        return DatabaseStatus(
            queues=await self.queues.list(),
            breakers=await self.breakers.list(),
            workers=await self.workers.list() if is_told else None,
        )

    async def overview(self) -> Overview:
        """One look at everything: queues, workers, open breakers, what has ended, how long the
        newest of it took, and the newest failures."""
        return await overview(await self._store(), self._seam.now())

    async def examine(self, *, transaction_seconds: float = 300.0) -> Examination:
        """Say how the database and what works on it are: findings, the worst first.

        Nothing is changed, and a database that can't be reached is a finding, too. A transaction
        that holds back vacuum is told of when it is open for longer than `transaction_seconds`.
        """
        patience = make_patience(transaction_seconds, self.settings.reclaim_seconds)
        timeouts = {each.name: each.timeout_seconds for each in self._definitions.values()}
        return await examine(self._make_store(), self.url_shown, patience, timeouts)

    async def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date; answer the steps taken."""
        store = self._make_store()
        try:
            done = list(await store.migrate())
            if self._tables:
                owner = require(store, Transactions, "keep tables of an application")
                async with transaction(owner, read_only=False) as connection:
                    for tables in self._tables:
                        done += await tables.migrate(connection)
            return done
        finally:
            await store.close()

    async def run_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: QueueChoice | None = None,
        until_empty: bool = False,
    ) -> WorkerReport:
        """Run jobs until SIGTERM or SIGINT, or until canceled.

        With `until_empty`, until nothing runs and nothing becomes due within one lease length.
        The signals are left alone if somebody else (a web server, say) handles them. Either way
        what runs is finished within `grace_seconds` or released; the second signal hurries.
        """
        return await self._run_worker(self._slots(concurrency, queues), self._horizon(until_empty))

    async def run_due(self, concurrency: int | None = None) -> WorkerReport:
        """Run what is due now, and what becomes due meanwhile, and come back: for tests."""
        return await self._run_worker(self._slots(concurrency, None), 0.0)

    async def _run_launched(
        self,
        launch: Launch,
        birth: Birth | None,
        *,
        concurrency: int | None = None,
        queues: QueueChoice | None = None,
        until_empty: bool = False,
    ) -> WorkerReport:
        """`run_worker` for a process that is nothing but a worker: `holdfast worker`."""
        if birth and birth.queues is not None:
            queues = birth.queues
        slots = self._slots(1 if birth and birth.suspects_only else concurrency, queues)
        return await self._run_worker(slots, self._horizon(until_empty), launch, birth)

    async def _run_processes(
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
        return await take_back_in_time(self._open, worker_id, reason)

    @asynccontextmanager
    async def _borrowed(self, url: str, seam: Seam) -> AsyncIterator[None]:
        """Stand on another database and machine until the end of the block: for tests."""
        own = self._url, self._seam, self._loops
        self._url, self._seam, self._loops = url, seam, Loops(seam, self._open)
        try:
            yield
        finally:
            await asyncio.to_thread(self.close_sync)
            await self.close()
            self._url, self._seam, self._loops = own

    def _slots(self, concurrency: int | None, queues: QueueChoice | None) -> Slots:
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
        stop = StopRequest(self._seam, self.settings, ends_process=launch is not None)
        async with stop.signals(), AsyncExitStack() as stack:
            async with stop.cutting_off():
                metrics_socket = await stack.enter_async_context(self._exposed(birth))
                # One that is to end by itself waits for no database that is away.
                stays = horizon_seconds is None
                store = await (self._loops.store_at_last() if stays else self._store())
                children = await stack.enter_async_context(making)
                made = await stack.enter_async_context(resources.opened(self._resources))
                await tell_unknown_queues(store, slots.queues, declared)
            if stop.told.is_set():
                return WorkerReport()
            worker = Worker(
                birth=birth,
                owns_process=launch is not None,
                stop=stop,
                find_launch=lambda: launch or self._find_launch(),
                metrics_socket=metrics_socket,
                store=store,
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
            return await worker.run()

    def _for_child(
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
                owner = require(store, Transactions, "keep tables of an application")
                await check_tables(owner, self._tables, may_migrate=may_migrate)
        except asyncio.CancelledError:
            store.abandon()  # a database that does not answer keeps nobody from giving up
            raise
        except BaseException:
            await store.close()
            raise
        return store

    def new_id(self) -> UUID:
        """Make an id for a job before it is enqueued: `resize.options(id=...)`."""
        return self._enqueuer.new_id(self._seam.now())
