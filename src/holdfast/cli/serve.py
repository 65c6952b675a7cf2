"""`holdfast serve`: the HTTP API, optionally with a worker in the same process."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from logging import WARNING
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from holdfast.app import Holdfast
from holdfast.cli.init import leave_first_process
from holdfast.cli.log_options import configure_logs, log_options
from holdfast.cli.loop import run
from holdfast.cli.session import Command
from holdfast.cli.target import APP_ENVIRONMENT_NAME, load_app
from holdfast.cli.worker import concurrency_option, queues_option
from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.observability import logs
from holdfast.starter import run_worker
from holdfast.worker.processes.launch import Launch

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from holdfast.api import Service

MakePages = Callable[["Service"], Sequence["BaseRoute"]]

HOST = "127.0.0.1"
PORT = 8000
START_SECONDS_MAX = 3.0  # to reach the database before the server starts without it
FILES_MAX = 65_536
NEEDED = ("fastapi", "prometheus_client", "uvicorn")
NEEDED_BY_PAGES = ("jinja2",)


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME", envvar=APP_ENVIRONMENT_NAME)
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen on. 0 picks a free one; the log says which.",
)
@click.option("--worker", "with_worker", is_flag=True, help="Also run jobs in this process.")
@concurrency_option
@queues_option
@click.option(
    "--proxies",
    metavar="ADDRESSES",
    help="Trust X-Forwarded-For from these addresses, for example 10.0.0.0/8. Default: none.",
)
@click.option(
    "--hosts",
    metavar="NAMES",
    help="Host names that the dashboard answers to, for example jobs.example.com. Default: any.",
)
@log_options
@click.option("--fd", type=int, hidden=True)  # of a socket that is already listening
def serve(
    app: str,
    host: str,
    port: int,
    with_worker: bool,
    concurrency: int | None,
    queues: str | None,
    proxies: str | None,
    hosts: str | None,
    fd: int | None,
    **log_choices: Any,
) -> None:
    """Serve the HTTP API and the dashboard of a Holdfast object until SIGTERM or Ctrl-C.

    With --worker, jobs run in the same process. The first signal ends waiting requests and gives
    other requests and running jobs the grace period to finish. A second signal cuts them short.

    The dashboard is at /. Without keys, only this machine is served: see `holdfast keys`.

    \b
    Examples:
      holdfast serve app:hf
      holdfast serve app:hf --worker --concurrency 50 --queues mail,images:4
      holdfast serve app:hf --host 0.0.0.0 --port 80 --hosts jobs.example.com
    """
    leave_first_process()
    if not with_worker and (_is_given("concurrency") or _is_given("queues")):
        raise click.UsageError("--concurrency and --queues need --worker")
    check_installed()
    found = load_app(app)
    options = configure_logs(found, **log_choices)
    from holdfast.api.server import listen

    listening = listen(host, port) if fd is None else socket.socket(fileno=fd)
    _raise_file_limit()
    # What is loaded now stays loaded, so the garbage collector can skip it.
    gc.collect()
    gc.freeze()
    work = {"concurrency": concurrency, "queues": queues} if with_worker else None
    pages = pages_for(hosts, app)
    run(_serve(found, listening, host, proxies, pages, Launch(app, options), work))


def check_installed() -> None:
    _check_installed("the HTTP API", "api", NEEDED)


def check_pages_installed() -> None:
    _check_installed("the dashboard", "api,dashboard", (*NEEDED, *NEEDED_BY_PAGES))


def _check_installed(what: str, extras: str, names: Sequence[str]) -> None:
    try:
        for name in names:
            import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"{what} needs extra packages ({error}); run: pip install 'holdfast[{extras}]'"
        ) from error


def pages_for(hosts: str | None = None, app: str | None = None) -> MakePages:
    """Return what makes the pages of the dashboard or, without its extra, a hint how to get it.
    They name the app, if there is one, in commands to paste."""
    try:
        for name in NEEDED_BY_PAGES:
            import_module(name)
    except ImportError:
        from holdfast.api.hints import make_hint

        return make_hint
    from holdfast.dashboard import make_pages

    names = [each.strip() for each in (hosts or "").split(",")]
    return partial(make_pages, hosts=[each for each in names if each], app=app)


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def _raise_file_limit() -> None:
    """Every connection is a file, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(
    hf: Holdfast,
    listening: socket.socket,
    host: str,
    proxies: str | None,
    pages: MakePages,
    launch: Launch,
    work: dict[str, Any] | None,
) -> None:
    from holdfast.api import make_api, server

    try:
        # A worker does the upkeep, too, but does not register who leases remote jobs.
        leases = any(each.is_remote for each in hf._definitions.values())
        api = make_api(hf, upkeep=leases or work is None, pages=pages)
        await check_database(api.state.service.gate.check_open_to(host))
        grace_seconds = hf.settings.grace_seconds
        made = server.make_server(api, grace_seconds=grace_seconds, proxies=proxies)
        working = None if work is None else run_worker(hf, launch, **work)
        await server.serve(made, listening, working)
    finally:
        await hf.close()


async def check_database(checking: Awaitable[None]) -> None:
    """Fail on what only the user can fix. A database that is down will come back."""
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            await checking
    except (StoreUnavailable, TimeoutError) as error:
        text = str(error) or "the database did not answer in time"
        logs.event(WARNING, "open_failed", f"{text}; requests get 503 until it answers")
