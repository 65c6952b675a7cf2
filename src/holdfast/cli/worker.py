"""`holdfast worker`: run jobs until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from click.exceptions import Exit

from holdfast.app import Holdfast
from holdfast.cli.init import leave_first_process
from holdfast.cli.log_options import configure_logs, log_options
from holdfast.cli.loop import run
from holdfast.cli.session import Command, say
from holdfast.cli.target import APP_ENVIRONMENT_NAME, load_app
from holdfast.domain.errors import WorkerHung
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.starter import run_processes, run_worker
from holdfast.worker.deadline import BLOCKED_CODE
from holdfast.worker.processes.launch import Birth, Launch

LOOK_AT_PARENT_SECONDS = 1.0
# How long a thread keeps the interpreter's lock while others wait for it. With Python's 5 ms, the
# event loop starts and ends hundreds of jobs in one go, and the thread that writes to SQLite waits.
SWITCH_SECONDS = 0.0002

concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of jobs to run at once.",
)
queues_option = click.option(
    "--queues",
    metavar="A,B:10",
    envvar="HOLDFAST_QUEUES",
    help="Serve only these queues, B with at most 10 jobs at once.",
)


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME", envvar=APP_ENVIRONMENT_NAME)
@concurrency_option
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    envvar="HOLDFAST_PROCESSES",
    help="Number of worker processes to run and keep alive.",
)
@queues_option
@click.option(
    "--until-empty",
    is_flag=True,
    help="Exit when no job is running and none is due within the length of a lease.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve metrics on this port.",
)
@click.option(
    "--metrics-host",
    metavar="HOST",
    help="Address for metrics. Default: the setting metrics_host (127.0.0.1).",
)
@log_options
@click.option("--birth", hidden=True)
def worker(
    app: str,
    processes: int | None,
    birth: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    log_format: logs.Format | None,
    log_level: str,
    log_errors: bool,
    **choices: Any,
) -> None:
    """Run the jobs of a Holdfast object until SIGTERM or Ctrl-C.

    The first signal gives running jobs the grace period to finish, then releases the rest; a second
    one releases them at once. With --processes, a worker that dies is restarted.

    \b
    Examples:
      holdfast worker app:hf
      holdfast worker app:hf --processes 4 --concurrency 50 --queues mail,images:4
      holdfast worker app:hf --until-empty
      holdfast worker app:hf --metrics-port 9464

    Options can be set in the environment, too: HOLDFAST_QUEUES for --queues, and so on.
    """
    leave_first_process()
    born = msgspec.json.decode(birth, type=Birth) if birth else None
    found = _load(app, born)
    _override(found, metrics_port=metrics_port, metrics_host=metrics_host)
    options = configure_logs(found, log_format, log_level, log_errors)
    # What is loaded by now stays loaded, so the garbage collector need not examine it.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    launch = Launch(app, options, *((born.modules, born.path) if born else ()))
    if born is not None:
        _ignore_environment(choices)
    if processes is None or born is not None:
        _run(_work(found, launch, born, choices), born)
    elif not run(run_processes(found, launch, processes, **choices)):
        raise click.ClickException("a worker process failed; see the log")


def _override(app: Holdfast, **options: Any) -> None:
    """Let the options override the settings."""
    given = {name: value for name, value in options.items() if value is not None}
    app.settings = replace(app.settings, **given)


def _ignore_environment(choices: dict[str, Any]) -> None:
    """A process that another one started serves what that one told it to."""
    source = click.get_current_context().get_parameter_source("queues")
    if source is ParameterSource.ENVIRONMENT:
        choices["queues"] = None


def _run(work: Coroutine[Any, Any, None], born: Birth | None) -> None:
    try:
        run(work)
    except WorkerHung as error:
        if born is None:
            raise
        # Tell the supervisor that the worker hung, not that it failed to start.
        say(str(error))
        raise Exit(BLOCKED_CODE) from None


def _load(app: str, born: Birth | None) -> Holdfast:
    if born is None:
        return load_app(app)
    _show_title(born.title)
    sys.path += [folder for folder in born.path if folder not in sys.path]
    found = load_app(app)
    for module in born.modules:
        importlib.import_module(module)
    return found


def _show_title(title: str) -> None:
    """Set the name that `top` and `ps` show, where the system supports it."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(title, encoding="utf-8")


async def _work(app: Holdfast, launch: Launch, born: Birth | None, choices: dict[str, Any]) -> None:
    if born is not None:
        seconds = app.settings.grace_seconds + STOP_SECONDS_MAX
        stop = partial(_stop_when_orphaned, born.parent, seconds)
        Seam().threads("holdfast-orphan", 1).submit(stop)
    try:
        await run_worker(app, launch, born, **choices)
    finally:
        await app.close()


def _stop_when_orphaned(parent: int, seconds: float) -> None:
    """Stop this process when its parent is gone; kill it if it doesn't stop in time."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(LOOK_AT_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    pause.wait(seconds)
    Seam().exit(BLOCKED_CODE)
