"""`holdfast worker`: run jobs until told to stop."""

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
from click.exceptions import Exit

from holdfast.app import Holdfast
from holdfast.cli.init import leave_first_process
from holdfast.cli.session import Command, run, say
from holdfast.cli.target import load_app
from holdfast.domain.errors import WorkerHung
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.worker.deadline import BLOCKED_CODE
from holdfast.worker.processes.launch import Birth, Launch

LEVELS = ("debug", "info", "warning", "error")
LOOK_AT_PARENT_SECONDS = 1.0


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME")
@click.option(
    "--concurrency", type=click.IntRange(min=1), help="Maximum number of jobs to run at once."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Number of worker processes to run and keep alive.",
)
@click.option(
    "--queues", metavar="A,B:10", help="Serve only these queues, B with at most 10 jobs at once."
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="Exit when no job is running anywhere or due within a lease.",
)
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve metrics on this port.")
@click.option(
    "--metrics-host",
    metavar="HOST",
    help="Address for metrics. Default: the setting metrics_host (127.0.0.1).",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    help="auto: readable in a terminal, JSON lines elsewhere.",
)
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info")
@click.option("--birth", hidden=True)
def worker(
    app: str,
    processes: int | None,
    log_format: logs.Format | None,
    log_level: str,
    birth: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
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
    """
    leave_first_process()
    born = msgspec.json.decode(birth, type=Birth) if birth else None
    found = _load(app, born)
    _expose(found, metrics_port, metrics_host)
    # Logging that the user's module has set up stays, unless a format was asked for.
    if log_format or not logs.configured():
        logs.configure(log_format or "auto", log_level)
    # What is loaded by now stays as long as the process: no need to look at it for garbage.
    gc.collect()
    gc.freeze()
    launch = _launch(app, born, log_format, log_level)
    if processes is None:
        _run(_work(found, launch, born, choices), born)
    elif not run(found._run_processes(launch, processes, **choices)):
        raise click.ClickException("a worker process failed; see the log")


def _expose(app: Holdfast, port: int | None, host: str | None) -> None:
    """Let what the command was told win over the settings."""
    given = {"metrics_port": port, "metrics_host": host}
    told: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    app.settings = replace(app.settings, **told)


def _run(work: Coroutine[Any, Any, None], born: Birth | None) -> None:
    try:
        run(work)
    except WorkerHung as error:
        if born is None:
            raise
        # Whoever started this process must not take it for one that never came to work.
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
    """Let `top` and `ps` show the process by this name, on systems that have a place for it."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(title, encoding="utf-8")


def _launch(app: str, born: Birth | None, log_format: str | None, log_level: str) -> Launch:
    """How this process can start others of its kind."""
    options = ["--log-level", log_level]
    options += ["--log-format", log_format] if log_format else []
    if born is None:
        return Launch(app, options)
    return Launch(app, options, born.modules, born.path)


async def _work(app: Holdfast, launch: Launch, born: Birth | None, choices: dict[str, Any]) -> None:
    if born is not None:
        seconds = app.settings.grace_seconds + STOP_SECONDS_MAX
        stop = partial(_stop_when_orphaned, born.parent, seconds)
        Seam().threads("holdfast-orphan", 1).submit(stop)
    try:
        await app._run_launched(launch, born, **choices)
    finally:
        await app.close()


def _stop_when_orphaned(parent: int, seconds: float) -> None:
    """Tell this process to stop when the one that started it is gone; end it if it does not."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(LOOK_AT_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    pause.wait(seconds)
    Seam().exit(BLOCKED_CODE)
