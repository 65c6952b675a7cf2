"""The Holdfast object: the one place that wires everything."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from holdfast.context import Context
from holdfast.domain import texts
from holdfast.domain.diagnosis.findings import Examination
from holdfast.domain.errors import BadArguments, ConfigurationError, JobFailed, ResultTimeout
from holdfast.domain.job import Job
from holdfast.domain.overview import Overview
from holdfast.domain.secrets import shown_url
from holdfast.domain.states import State
from holdfast.enqueuer import Enqueuer
from holdfast.job_function import Call, Definition, JobDecorator, JobFunction, JobOptions, define
from holdfast.observability import tracing
from holdfast.observability.exposition import DatabaseStatus, StatusCache, expose, load_client
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
from holdfast.stores import protocol
from holdfast.stores.protocol import Store, Transactions, WorkerPresence, capability, require
from holdfast.stores.registry import absolute_url, make_store, plain_url
from holdfast.transactions.drivers import recognize_async, recognize_sync, run_now
from holdfast.transactions.tables import Tables, check_tables, migrate_tables
from holdfast.transactions.transaction import transaction
from holdfast.worker import resources
from holdfast.worker.events import Events
from holdfast.worker.metrics_export import exposed
from holdfast.worker.processes.launch import Birth, Launch, find_launch
from holdfast.worker.processes.origin import check_not_loading
from holdfast.worker.processes.pool import make_children
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.reclaim import reclaim_worker_in_time
from holdfast.worker.report import WorkerReport
from holdfast.worker.slots import QueueChoice, Slots, queue_caps
from holdfast.worker.spelling import warn_of_unknown_queues
from holdfast.worker.stop import StopRequest
from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """Define, enqueue, inspect and run jobs on one database.

    `url` defaults to `HOLDFAST_DATABASE_URL`, then to the file `holdfast.db` in the current
    directory. Settings are keyword arguments, or environment variables of the same name. The
    operations of the command line are here as `hf.jobs`, `hf.dead`, `hf.queues`, `hf.breakers`
    and `hf.workers`.

    The object connects on first use. Event loops and threads can share it.
    """

    def __init__(
        self, url: str | None = None, *, seam: Seam | None = None, **settings: Any
    ) -> None:
        self.settings = read_settings(settings)
        given_url = url or os.environ.get("HOLDFAST_DATABASE_URL") or DEFAULT_URL
        self._url = plain_url(given_url)
        self._seam = seam or Seam()
        self._definitions: dict[str, Definition] = {}
        self._resources: dict[str, resources.ResourceFunction] = {}
        self._tables: list[Tables] = []
        self._loops = Loops(self._seam, self._open)
        self._metrics = Metrics()
        self._status = StatusCache(self._read_status, self._seam.monotonic)
        self._folder = os.path.abspath("")  # relative files stay put when a handler changes it
        self._make_store()  # reject a bad URL now
        desk = Desk(self._store, lambda: self._seam, self.new_id, self._definitions, self.settings)
        self.jobs = Jobs(desk)
        self._enqueuer = Enqueuer(desk, self._make_store, self._metrics, self._seam.random)
        self.dead = Dead(self.jobs)
        self.queues = Queues(desk, self.jobs)
        self.breakers = Breakers(desk)
        self.workers = Workers(desk)

    @property
    def url_shown(self) -> str:
        """The database URL without its password."""
        return shown_url(self._url)

    @property
    def _database(self) -> str:
        return absolute_url(self._url, self._folder)

    def _make_store(self) -> Store:
        return make_store(self._database, self._seam, self.settings)

    @property
    def names(self) -> list[str]:
        """The names and aliases of all defined jobs."""
        return sorted(self._definitions)

    @overload
    def job(self, function: Callable[Concatenate[Context, P], Any], /) -> JobFunction[P]: ...

    @overload
    def job(self, function: Callable[P, Any], /) -> JobFunction[P]: ...

    @overload
    def job(self, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Turn a function, async or not, into a job: `@hf.job` or `@hf.job(queue="images")`.

        If the first parameter is named `ctx` or annotated with `Context`, it receives the context.
        The options: name, aliases, queue, priority, retry, timeout_seconds, executor,
        memory_bytes_max, permanent, transient, expires_in_seconds, tags and breaker.
        """
        if function is None:
            return lambda decorated: self._define(decorated, options)
        return self._define(function, options)

    def _define(self, function: Callable[..., Any], options: Mapping[str, Any]) -> JobFunction[...]:
        definition, defaults = define(function, options, self.settings.max_attempts)
        names = (definition.name, *definition.aliases)
        for name in names:
            texts.check_name("job name", name)
            if name in self._definitions or names.count(name) > 1:
                raise ConfigurationError(f"a job named {name!r} already exists")
        self._definitions.update(dict.fromkeys(names, definition))
        return JobFunction(self, definition, defaults)

    def resource(self, function: resources.ResourceFunction) -> resources.ResourceFunction:
        """Share what a function returns or yields with all handlers, as `ctx.resources[name]`.

        A worker calls the function when it starts, and runs the code after `yield` when it stops.
        """
        name = function.__name__
        if name in self._resources:
            raise ConfigurationError(f"a resource named {name!r} already exists")
        self._resources[name] = function
        return function

    async def enqueue_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """Enqueue all calls or none: `await hf.enqueue_many([resize.call(1), resize.call(2)])`.

        With `connection`, the jobs are committed by that connection's transaction.
        """
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
        """Declare an application's tables, which the folder `sql` of its package defines.

        `migrate` creates them together with Holdfast's own. On SQLite, the first use does.
        """
        if self._loops.have_stores:
            raise ConfigurationError(f"declare the tables of {name} before you use the database")
        if any(tables.name == name for tables in self._tables):
            raise ConfigurationError(f"the tables of {name!r} are already declared")
        tables = Tables(name, package)
        self._tables.append(tables)
        return tables

    @asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[Any]:
        """Open a transaction on the database of the jobs: commit at the end, roll back on error.

        The block receives a connection with `execute`, `fetch`, `fetchrow` and `fetchval`, on
        SQLite and PostgreSQL alike. Enqueue jobs in it with `options(connection=...)`.
        """
        store = require(await self._store(), Transactions, "offer transactions")
        async with transaction(store, read_only=read_only) as connection:
            yield connection

    async def get(self, job_id: UUID) -> Job:
        """Return the job, or raise JobNotFound."""
        return await self.jobs.get(job_id)

    async def result(self, job_id: UUID, timeout_seconds: float | None = None) -> Any:
        """Wait until the job ends and return its result.

        Raises JobFailed if it did not succeed, and ResultTimeout if it takes too long.
        """
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
            raise ResultTimeout(f"job {job_id} did not end within {timeout_seconds:g} s") from None
        if job.state is not State.SUCCEEDED:
            raise JobFailed(job)
        return job.result

    async def metrics(self) -> str:
        """Return the metrics of this object and its database, in Prometheus' text format.

        Counting starts with the first call, or with a worker that serves metrics.
        """
        load_client()
        self._metrics.counting = True
        status = await self._status.get()
        return expose(self._metrics.snapshot(), status)

    async def _read_status(self) -> DatabaseStatus:
        store = await self._store()
        breakers = capability(store, protocol.Breakers)
        presence = capability(store, WorkerPresence)
        return DatabaseStatus(
            queues=await store.queues(),
            breakers=[] if breakers is None else await breakers.breakers(),
            workers=None if presence is None else await presence.workers(),
        )

    async def overview(self) -> Overview:
        """Return queues, workers, open breakers, ended jobs with their latency, and failures."""
        return await overview(await self._store(), self._seam.now())

    async def examine(self, *, transaction_seconds: float = 300.0) -> Examination:
        """Check the health of the database and its workers, as `holdfast doctor` does.

        Changes nothing. A database that can't be reached is a finding, not an error. A transaction
        that holds back vacuum is reported once it is older than `transaction_seconds`.
        """
        patience = make_patience(transaction_seconds, self.settings.reclaim_seconds)
        timeouts = {each.name: each.timeout_seconds for each in self._definitions.values()}
        return await examine(self._make_store(), self.url_shown, patience, timeouts)

    async def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date, and return the steps taken."""
        store = self._make_store()
        try:
            return [*await store.migrate(), *await migrate_tables(store, self._tables)]
        finally:
            await store.close()

    async def run_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: QueueChoice | None = None,
        until_empty: bool = False,
    ) -> WorkerReport:
        """Run jobs until SIGTERM, SIGINT or a cancellation.

        With `until_empty`, stop once no job is running or due within one lease length. Running
        jobs get `grace_seconds` to finish and are released after that; a second signal cuts this
        short. If another program (a web server, say) handles the signals, they stay with it.
        """
        return await self._run_worker(
            concurrency=concurrency, queues=queues, until_empty=until_empty
        )

    async def run_due(self, concurrency: int | None = None) -> WorkerReport:
        """Run the jobs that are due, and those that become due while they run. For tests."""
        return await self._run_worker(concurrency=concurrency, horizon_seconds=0.0)

    async def _run_processes(
        self,
        launch: Launch,
        processes: int,
        *,
        concurrency: int | None = None,
        queues: str | None = None,
        until_empty: bool = False,
    ) -> bool:
        """Run worker processes until SIGTERM or SIGINT; return whether all exited cleanly."""
        check_not_loading()
        slots = self._slots(concurrency, queues)  # reject bad options before they start
        options = [*launch.options, "--concurrency", str(slots.concurrency)]
        options += ["--queues", queues] if queues else []
        options += ["--until-empty"] if until_empty else []
        async with self._exposed(None) as metrics_socket:
            supervisor = Supervisor(
                launch=replace(launch, options=options, metrics_socket=metrics_socket),
                count=processes,
                until_empty=until_empty,
                grace_seconds=self.settings.grace_seconds,
                seam=self._seam,
                reclaim=partial(reclaim_worker_in_time, self._open),
                events=Events(None, self._metrics, self._seam),
            )
            return await supervisor.run()

    def _exposed(self, birth: Birth | None) -> AbstractAsyncContextManager[str | None]:
        """Serve metrics if a port is set; the block gets the socket that processes report to."""
        seam, settings = self._seam, self.settings
        return exposed(self._metrics, self.metrics, self.close, settings, birth, seam)

    @asynccontextmanager
    async def _borrowed(self, url: str, seam: Seam) -> AsyncIterator[None]:
        """Use another database and machine inside the block. For tests."""
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
            raise ConfigurationError("no jobs are defined: decorate a function with @hf.job")
        limit = self.settings.concurrency if concurrency is None else concurrency
        return Slots(limit, queue_caps(queues))

    async def _run_worker(
        self,
        launch: Launch | None = None,
        birth: Birth | None = None,
        *,
        concurrency: int | None = None,
        queues: QueueChoice | None = None,
        until_empty: bool = False,
        horizon_seconds: float | None = None,
    ) -> WorkerReport:
        """`launch` is given in a process that is nothing but a worker, `birth` in one that another
        worker started."""
        if birth is not None and birth.queues is not None:
            queues = birth.queues
        slots = self._slots(1 if birth and birth.suspects_only else concurrency, queues)
        if until_empty:
            horizon_seconds = self.settings.lease_seconds
        check_not_loading()
        functions = [each.function for each in self._definitions.values()]
        declared = {each.queue for each in self._definitions.values()}
        making = make_children(
            self, self._database, self._definitions, self.settings, self._seam, self._metrics
        )
        stop = StopRequest(self._seam, self.settings, ends_process=launch is not None)
        async with stop.signals(), AsyncExitStack() as stack:
            async with stop.cutting_off():
                metrics_socket = await stack.enter_async_context(self._exposed(birth))
                # A worker that stops when it is done does not wait for a database to come back.
                stays = horizon_seconds is None
                store = await (self._loops.store_at_last() if stays else self._store())
                children = await stack.enter_async_context(making)
                made = await stack.enter_async_context(resources.opened(self._resources))
                await warn_of_unknown_queues(store, slots.queues, declared)
            if stop.requested.is_set():
                return WorkerReport()
            worker = Worker(
                birth=birth,
                owns_process=launch is not None,
                stop=stop,
                find_launch=lambda: launch or find_launch(self, functions),
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
        """Use the worker's database, and return what a child process runs."""
        self._url = url
        return self._definitions, self._resources

    async def close(self) -> None:
        """Close the connections of this event loop. The object can be used again."""
        await self._loops.close()

    def close_sync(self) -> None:
        """Close the connections that `enqueue_sync` and `enqueue_many_sync` opened."""
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
            may_migrate = self._database.startswith("sqlite:")
            await check_tables(store, self._tables, may_migrate=may_migrate)
        except asyncio.CancelledError:
            store.abandon()  # without waiting: the database may not answer
            raise
        except BaseException:
            await store.close()
            raise
        return store

    def new_id(self) -> UUID:
        """Return a new job id, for `resize.options(id=...)`."""
        return self._enqueuer.new_id(self._seam.now())
