"""Start workers for an app, in this process or in several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

# A handler may pass a connection at any time, even after an upgrade has replaced the files.
import holdfast.transactions.drivers.ways  # noqa: F401
from holdfast.domain.errors import ConfigurationError
from holdfast.job_function import Definition
from holdfast.worker import resources
from holdfast.worker.events import Events
from holdfast.worker.metrics_export import exposed
from holdfast.worker.probes import Probes
from holdfast.worker.processes.launch import Birth, Launch, find_launch
from holdfast.worker.processes.messages import AppBoot
from holdfast.worker.processes.origin import check_not_loading
from holdfast.worker.processes.pool import Children, find_app
from holdfast.worker.processes.supervisor import Supervisor
from holdfast.worker.reclaim import reclaim_worker_in_time
from holdfast.worker.report import WorkerReport
from holdfast.worker.sampler import sampling
from holdfast.worker.setup import Setup
from holdfast.worker.slots import QueueChoice, Slots, queue_caps
from holdfast.worker.spelling import warn_of_unknown_queues
from holdfast.worker.stop import StopRequest
from holdfast.worker.upkeep import Upkeep
from holdfast.worker.work import Work
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.app import Holdfast


async def run_worker(
    app: Holdfast,
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
    slots = _slots(app, 1 if birth and birth.suspects_only else concurrency, queues)
    if until_empty:
        horizon_seconds = app.settings.lease_seconds
    check_not_loading()
    own = {name: each for name, each in app._definitions.items() if not each.is_remote}
    functions = [each.function for each in own.values()]
    functions += app._middleware.functions
    declared = {each.queue for each in own.values()} | {each.queue for each in app._sweeps}
    making = Children(_origin(app, own), slots.concurrency, app.settings, app._seam, app._metrics)
    stop = StopRequest(app._seam, app.settings, ends_process=launch is not None)
    async with stop.signals(), AsyncExitStack() as stack:
        async with stop.cutting_off():
            metrics_socket = await stack.enter_async_context(_exposed(app, birth))
            # A worker that stops when it is done does not wait for a database to come back.
            stays = horizon_seconds is None
            store = await (app._loops.store_at_last() if stays else app._store())
            children = await stack.enter_async_context(making)
            made = await stack.enter_async_context(resources.opened(app._resources))
            if stays:
                await stack.enter_async_context(sampling(app._sampling.take, app._seam))
            await warn_of_unknown_queues(store, slots.queues, declared)
        if stop.requested.is_set():
            return WorkerReport()
        around = app._middleware.compose(log_errors=app.settings.log_errors)
        worker = Worker(
            birth=birth,
            owns_process=launch is not None,
            stop=stop,
            find_launch=lambda: launch or find_launch(app, functions),
            metrics_socket=metrics_socket,
            database=app.url_shown,
            store=store,
            make_keepers_store=app._make_store,
            work=Work(own, made, children, around, app._desk.cipher),
            remote_names=app._definitions.keys() - own.keys(),
            sweeps=app._sweeps,
            settings=app.settings,
            seam=app._seam,
            counted=app._metrics,
            messengers=app.messengers,
            slots=slots,
            horizon_seconds=horizon_seconds,
        )
        return await worker.run()


def _origin(app: Holdfast, own: Mapping[str, Definition]) -> AppBoot | None:
    """Where child processes find the app; None if there are none."""
    if not app._seam.starts_processes:
        return None
    return find_app(app, app._database, own, app._middleware, app.settings)


async def run_upkeep(app: Holdfast) -> None:
    """Do the upkeep of a worker for an API server, until this is canceled."""
    remote = sorted(name for name, each in app._definitions.items() if each.is_remote)
    store = await app._loops.store_at_last()
    setup = Setup(
        app._seam.identity(),
        store,
        tuple(remote),
        Slots.none(),
        app.settings,
        app._seam,
        app.messengers,
    )
    events = Events(setup.worker_id, app._metrics, app._seam)
    async with sampling(app._sampling.take, app._seam):
        await Upkeep(setup, app._make_store, events.reclaimed).run()


async def run_processes(
    app: Holdfast,
    launch: Launch,
    processes: int,
    *,
    concurrency: int | None = None,
    queues: str | None = None,
    until_empty: bool = False,
) -> bool:
    """Run worker processes until SIGTERM or SIGINT; return whether all exited cleanly."""
    check_not_loading()
    slots = _slots(app, concurrency, queues)  # reject bad options before they start
    options = [*launch.options, "--concurrency", str(slots.concurrency)]
    options += ["--queues", queues] if queues else []
    options += ["--until-empty"] if until_empty else []
    async with _exposed(app, None, processes) as metrics_socket:
        supervisor = Supervisor(
            launch=replace(launch, options=options, metrics_socket=metrics_socket),
            count=processes,
            until_empty=until_empty,
            grace_seconds=app.settings.grace_seconds,
            seam=app._seam,
            reclaim=partial(reclaim_worker_in_time, app._open),
            events=Events(None, app._metrics, app._seam),
        )
        return await supervisor.run()


def _slots(app: Holdfast, concurrency: int | None, queues: QueueChoice | None) -> Slots:
    if not app._definitions and not app._sweeps:
        raise ConfigurationError("no jobs are defined: decorate a function with @hf.job")
    limit = app.settings.concurrency if concurrency is None else concurrency
    return Slots(limit, queue_caps(queues))


def _exposed(
    app: Holdfast, birth: Birth | None, workers: int = 1
) -> AbstractAsyncContextManager[str | None]:
    """Serve metrics if a port is set; the block gets the socket that processes report to."""
    seam, settings = app._seam, app.settings
    probes = Probes(
        app._metrics,
        app.now,
        seam.monotonic,
        workers=workers,
        blocked_seconds_max=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
        messengers_required=settings.messengers_required,
    )
    return exposed(app._metrics, app.metrics, app.close, settings, birth, seam, probes.by_path)
