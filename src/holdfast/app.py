"""The Holdfast object: the one place that wires everything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from holdfast.context import Context, in_encrypted_job
from holdfast.domain import texts
from holdfast.domain.diagnosis.findings import Examination
from holdfast.domain.encrypted_jobs import JobCipher
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Job
from holdfast.domain.overview import Overview
from holdfast.domain.schemas import JobSchemas
from holdfast.domain.secrets import shown_url
from holdfast.enqueuer import Enqueued, Enqueuer, Record
from holdfast.job_function import Call, Definition, JobDecorator, JobFunction, JobOptions, define
from holdfast.observability import tracing
from holdfast.observability.exposition import StatusCache, expose, load_client
from holdfast.observability.metrics import Metrics
from holdfast.operations.desk import Desk
from holdfast.operations.operations import Noun, Operations
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.results import wait_for_result
from holdfast.operations.samples import SampleReader, Sampling
from holdfast.operations.secrets import Secrets
from holdfast.operations.status import database_status, overview
from holdfast.runtime.blocking import blocking, refuse_on_loop
from holdfast.runtime.loops import Loops
from holdfast.runtime.seam import Seam
from holdfast.settings import DEFAULT_URL, read_settings
from holdfast.stores.protocol import Store, Transactions, require
from holdfast.stores.registry import absolute_url, make_store, plain_url
from holdfast.tenant import Tenant
from holdfast.transactions.hooks import after_commit, hooked
from holdfast.transactions.sync import SyncConnection, transaction_sync
from holdfast.transactions.tables import Tables, check_tables, migrate_tables
from holdfast.transactions.transaction import transaction
from holdfast.wakeups.messengers import Messengers
from holdfast.wakeups.protocol import Messenger
from holdfast.wakeups.registry import make_messengers
from holdfast.worker import resources
from holdfast.worker.middleware import AsyncFunction, Function, Middleware
from holdfast.worker.processes.origin import check_not_loading
from holdfast.worker.report import WorkerReport
from holdfast.worker.slots import QueueChoice
from holdfast.worker.sweeps import Sweep, SweepFunction, make_sweep

if TYPE_CHECKING:
    from holdfast.api import Router, Service
    from holdfast.dashboard.systems import SystemPages
    from holdfast.job_function import (
        AsyncContextJobFunction,
        AsyncJobFunction,
        ContextJobFunction,
        PlainJobFunction,
    )
    from holdfast.operations.audit import Audit
    from holdfast.operations.breakers import Breakers
    from holdfast.operations.bulk import Bulk
    from holdfast.operations.bulk_run import BulkRuns
    from holdfast.operations.dead import Dead
    from holdfast.operations.jobs import Jobs
    from holdfast.operations.keys import Keys
    from holdfast.operations.messages import Messages
    from holdfast.operations.pepper import Pepper
    from holdfast.operations.queues import Queues
    from holdfast.operations.roles import Roles
    from holdfast.operations.workers import Workers

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

    jobs: Noun[Jobs] = Noun()
    dead: Noun[Dead] = Noun()
    queues: Noun[Queues] = Noun()
    breakers: Noun[Breakers] = Noun()
    bulk: Noun[Bulk] = Noun()
    workers: Noun[Workers] = Noun()
    messages: Noun[Messages] = Noun()
    roles: Noun[Roles] = Noun()
    audit: Noun[Audit] = Noun()
    keys: Noun[Keys] = Noun()
    _bulk_runs: Noun[BulkRuns] = Noun()
    _pepper: Noun[Pepper] = Noun()

    def __init__(
        self,
        url: str | None = None,
        *,
        messengers: str | Sequence[str | Messenger] | None = None,
        seam: Seam | None = None,
        **settings: Any,
    ) -> None:
        self.settings = read_settings(settings)
        given = self.settings.messengers if messengers is None else messengers
        self._url = plain_url(url or os.environ.get("HOLDFAST_DATABASE_URL") or DEFAULT_URL)
        self._seam = seam or Seam()
        required = self.settings.messengers_required
        self.messengers = Messengers(make_messengers(given, self._seam, required=required))
        self._definitions: dict[str, Definition] = {}
        self._functions: dict[str, JobFunction[..., Any]] = {}
        self._resources: dict[str, resources.ResourceFunction] = {}
        self._middleware = Middleware()
        self._sweeps: list[Sweep] = []
        self._tables: list[Tables] = []
        self._routes: list[Callable[[Service], Router]] = []
        self._pages: list[Callable[[Service], SystemPages]] = []
        self._loops = Loops(self._seam, self._open)
        self._metrics = Metrics(self.messengers.statuses)
        self._status = StatusCache(partial(database_status, self._store), self._seam.monotonic)
        self._own_tables = own = OwnTables(self._store, lambda: self._may_migrate)
        self._folder = os.path.abspath("")  # relative files stay put when a handler changes it
        self._make_store()  # reject a bad URL now
        self.secrets = Secrets(lambda: self._database, self.transaction, self._run_sync)
        self.secrets.add("jobs", own.tables, counts="encrypted_jobs_by_key")
        self._desk = desk = Desk(
            self._store,
            self._make_store,
            lambda: self._seam,
            self.new_id,
            self._definitions,
            self.settings,
            self._run_sync,
            JobCipher(self.secrets),
            self.messengers,
        )
        self._enqueuer = Enqueuer(desk, self._metrics, self._seam.random)
        self._operations = Operations(desk, own, lambda: self._database, self._all_tables)
        self.samples = SampleReader(desk, own)
        self._sampling = Sampling(desk, own, self._metrics.throughput)

    @property
    def url_shown(self) -> str:
        """The database URL without its password."""
        return shown_url(self._url)

    @property
    def _database(self) -> str:
        return absolute_url(self._url, self._folder)

    @property
    def _may_migrate(self) -> bool:
        """Whether the first use may bring tables up to date."""
        return self._database.startswith("sqlite:") and not self.settings.read_only

    def _make_store(self) -> Store:
        return make_store(self._database, self._seam, self.settings)

    @property
    def names(self) -> list[str]:
        """The names and aliases of all defined jobs."""
        return sorted(self._definitions)

    def schemas(self) -> dict[str, JobSchemas]:
        """Return the JSON Schemas (draft 2020-12) of all jobs, by name."""
        return {each.name: each.schemas for each in self._definitions.values()}

    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextJobFunction[P, R]: ...

    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[P, R]: ...

    @overload
    def job(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> ContextJobFunction[P, R]: ...

    @overload
    def job(self, function: Callable[P, R], /) -> PlainJobFunction[P, R]: ...

    @overload
    def job(self, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Turn a function, async or not, into a job: `@hf.job` or `@hf.job(queue="images")`.

        If the first parameter is named `ctx` or annotated with `Context`, it receives the context.
        The options: name, aliases, queue, priority, retry, timeout_seconds, executor,
        memory_bytes_max, permanent, transient, expires_in_seconds, tags, breaker and encrypted.
        """
        if function is None:
            return lambda decorated: self._define(decorated, options)
        return self._define(function, options)

    def _define(
        self, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> JobFunction[..., Any]:
        definition, defaults = define(function, options, self.settings.max_attempts)
        names = (definition.name, *definition.aliases)
        for name in names:
            texts.check_name("job name", name)
            if name in self._definitions or names.count(name) > 1:
                raise ConfigurationError(f"a job named {name!r} already exists")
        made: JobFunction[..., Any] = JobFunction(self, definition, defaults)
        self._definitions.update(dict.fromkeys(names, definition))
        self._functions.update(dict.fromkeys(names, made))
        return made

    def resource(self, function: resources.ResourceFunction) -> resources.ResourceFunction:
        """Share what a function returns or yields with all handlers, as `ctx.resources[name]`.

        A worker calls the function when it starts, and runs the code after `yield` when it stops.
        """
        name = function.__name__
        if name in self._resources:
            raise ConfigurationError(f"a resource named {name!r} already exists")
        self._resources[name] = function
        return function

    def middleware(self, function: AsyncFunction) -> AsyncFunction:
        """Run an async function around every handler: `async def timed(ctx, call_next)`.

        It ends with `return await call_next()`. The first one registered is the outermost.
        """
        return self._middleware.add("middleware", function)

    def before_run(self, function: Function) -> Function:
        """Call a function, async or not, with `ctx` before every handler. If it raises, the attempt
        fails."""
        return self._middleware.add("before_run", function)

    def after_run(self, function: Function) -> Function:
        """Call a function, async or not, with `ctx` and the result of every attempt that
        succeeds. What it raises is logged."""
        return self._middleware.add("after_run", function)

    def on_failure(self, function: Function) -> Function:
        """Call a function, async or not, with `ctx` and the exception of every attempt that fails,
        whether or not it is retried. What it raises is logged."""
        return self._middleware.add("on_failure", function)

    def sweep(
        self, *, queue: str, every_seconds: float | None = None
    ) -> Callable[[SweepFunction], SweepFunction]:
        """Have every worker that serves the queue call an async function that finds work in the
        application's tables: `async def collect(ctx: SweepContext) -> float | None`.

        It returns the number of seconds until there is more to do, 0 if there is more right now, or
        None if it doesn't know. It is called at that time, when the worker starts, when
        `hf.queues.wake` wakes its queue, and at least every `every_seconds`, which defaults to
        `poll_seconds`.
        """
        return lambda function: make_sweep(self._sweeps, function, queue, every_seconds)

    async def enqueue_many(self, calls: Sequence[Call], *, connection: Any = None) -> list[Job]:
        """Enqueue all calls or none: `await hf.enqueue_many([resize.call(1), resize.call(2)])`.

        With `connection`, the jobs are committed by that connection's transaction.
        """
        return [each.job for each in await self._enqueue(calls, connection)]

    async def _enqueue(
        self, calls: Sequence[Call], connection: Any = None, record: Record | None = None
    ) -> list[Enqueued]:
        with tracing.enqueuing() as span:
            now = self._seam.now()
            jobs = self._enqueuer.new_jobs(calls, span, now)
            if connection is None:
                return await self._enqueuer.enqueue(jobs, now, record)
            return await self._enqueuer.enqueue_through(connection, jobs, now)

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

    def _all_tables(self) -> list[Tables]:
        return [self._own_tables.tables, *self._tables]

    def add_routes(self, make_routes: Callable[[Service], Router]) -> None:
        """Add routes to the HTTP API. `make_routes` gets the service and returns a
        `holdfast.api.Router`. Each route must name the scope that it requires."""
        self._routes.append(make_routes)

    def add_pages(self, make_pages: Callable[[Service], SystemPages]) -> None:
        """Add a system to the dashboard: see `holdfast.dashboard.systems`. `make_pages` gets the
        service, and is called only where the dashboard is served."""
        self._pages.append(make_pages)

    @asynccontextmanager
    async def transaction(self, *, read_only: bool = False) -> AsyncIterator[Any]:
        """Open a transaction on the database of the jobs: commit at the end, roll back on error.

        The block receives a connection with `execute`, `fetch`, `fetchrow` and `fetchval`, on
        SQLite and PostgreSQL alike. Enqueue jobs in it with `options(connection=...)`.
        """
        store = require(await self._store(), Transactions, "offer transactions")
        async with (
            hooked() as hooks,
            transaction(store, read_only=read_only, hooks=hooks) as connection,
        ):
            yield connection

    @contextmanager
    def transaction_sync(self, *, read_only: bool = False) -> Iterator[SyncConnection]:
        """`transaction` for code without an event loop."""
        refuse_on_loop("transaction_sync", "async with transaction(...)")
        store = require(self._run_sync(self._store()), Transactions, "offer transactions")
        with transaction_sync(store, self._run_sync, read_only=read_only) as connection:
            yield connection

    def after_commit(self, connection: Any, function: Callable[[], Any]) -> None:
        """Call a function, async or not, after the commit of this connection's block.

        `connection` is that of the `hf.transaction()`, `ctx.completing()` or `ctx.failing()` block
        around this call. The functions run once, in order; after a rollback, they don't run. What
        one raises is logged and changes nothing. If the process dies after the commit, they are
        lost: enqueue a job instead if something has to happen.
        """
        log_errors = self.settings.log_errors and not in_encrypted_job()
        after_commit(connection, function, log_errors=log_errors)

    def for_tenant(self, name: str) -> Tenant:
        """Return the jobs of one tenant, as if no other tenant existed.

        Jobs without a tenant belong to the tenant `default`.
        """
        texts.check_name("tenant", name)
        return Tenant(self, name)

    async def now(self) -> datetime:
        """Return the time of the database's clock, which decides what is due."""
        return await (await self._store()).now()

    async def get(self, job_id: UUID) -> Job:
        """Return the job, or raise JobNotFound."""
        return await self.jobs.get(job_id)

    async def cancel(
        self, job_id: UUID, *, by: str | None = None, because: str | None = None
    ) -> Job:
        """Cancel a waiting or running job, like `hf.jobs.cancel`."""
        return await self.jobs.cancel(job_id, by=by, because=because)

    @overload
    async def result(self, job: Job[R], timeout_seconds: float | None = None) -> R: ...

    @overload
    async def result(self, job: UUID, timeout_seconds: float | None = None) -> Any: ...

    async def result(self, job: Job | UUID, timeout_seconds: float | None = None) -> Any:
        """Wait until the job ends and return its result, as the type that the handler returns.

        Pass the job, so that type checkers know that type, or its id. If this object does not
        define the job, the result is a JSON value. Raises JobFailed if the job did not succeed,
        ResultTimeout if it takes too long, and UnreadableResult if the result does not fit.
        """
        return await wait_for_result(self._desk, self.get, job, timeout_seconds)

    async def metrics(self) -> str:
        """Return the metrics of this object and its database, in Prometheus' text format.

        Counting starts with the first call, or with a worker that serves metrics.
        """
        load_client()
        self._metrics.counting = True
        status = await self._status.get()
        return expose(self._metrics.snapshot(), status)

    async def overview(self) -> Overview:
        """Return queues, workers, open breakers, ended jobs with their latency, and failures."""
        return await overview(await self._store(), self._seam.now())

    async def examine(self, *, transaction_seconds: float = 300.0) -> Examination:
        """Check the health of the database and its workers, as `holdfast doctor` does.

        Changes nothing. A database that can't be reached is a finding, not an error. A transaction
        that holds back vacuum is reported once it is older than `transaction_seconds`.
        """
        from holdfast.operations.diagnosis import examine, make_patience

        patience = make_patience(transaction_seconds, self.settings.reclaim_seconds)
        timeouts = {each.name: each.timeout_seconds for each in self._definitions.values()}
        return await examine(self._make_store(), self.url_shown, patience, timeouts, self.secrets)

    async def migrate(self) -> Sequence[str]:
        """Bring the database's schema up to date, and return the steps taken."""
        store = self._make_store()
        try:
            tables = self._all_tables() if isinstance(store, Transactions) else []
            return [*await store.migrate(), *await migrate_tables(store, tables)]
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
        from holdfast.starter import run_worker  # which few processes need

        return await run_worker(
            self, concurrency=concurrency, queues=queues, until_empty=until_empty
        )

    async def run_due(self, concurrency: int | None = None) -> WorkerReport:
        """Run the jobs that are due, and those that become due while they run. For tests."""
        from holdfast.starter import run_worker

        return await run_worker(self, concurrency=concurrency, horizon_seconds=0.0)

    def _for_child(
        self, url: str
    ) -> tuple[Mapping[str, Definition], Mapping[str, resources.ResourceFunction]]:
        """Use the worker's database, and return what a child process runs."""
        self._url = url
        return self._definitions, self._resources

    async def close(self) -> None:
        """Close the connections of this event loop. The object can be used again."""
        await self.messengers.close()
        await self._loops.close()

    def close_sync(self) -> None:
        """Close the connections that methods for code without an event loop opened."""
        if self.messengers:
            self._run_sync(self.messengers.close())
        self._loops.close_sync()

    enqueue_many_sync = blocking(enqueue_many)
    now_sync = blocking(now)
    get_sync = blocking(get)
    cancel_sync = blocking(cancel)
    result_sync = blocking(result)
    metrics_sync = blocking(metrics)
    overview_sync = blocking(overview)
    examine_sync = blocking(examine)
    migrate_sync = blocking(migrate)

    async def __aenter__(self) -> Holdfast:
        await self._store()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        return self._loops.run_sync(work)

    async def _store(self) -> Store:
        return await self._loops.store()

    async def _open(self) -> Store:
        check_not_loading()
        store = self._make_store()
        try:
            await store.open()
            await check_tables(store, self._tables, may_migrate=self._may_migrate)
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
