"""`holdfast demo`: run one of the five systems end to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from holdfast.cli.loop import run
from holdfast.cli.session import FAILED_CODE, Command
from holdfast.domain.encryption import make_keys
from holdfast.domain.errors import ConfigurationError
from holdfast.operations.secrets import VARIABLE

SYSTEMS = ("webhooks", "passport", "convert", "compute", "documents")


@click.command(cls=Command)
@click.argument("system", type=click.Choice([*SYSTEMS, "all"]))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("holdfast-demo"),
    show_default=True,
    help="Directory for the files the system produces.",
)
@click.option(
    "--database",
    metavar="URL",
    help="Run on this database instead of a temporary SQLite file.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="With all: serve the dashboard until Ctrl-C, while work keeps arriving.",
)
def demo(system: str, out: Path, database: str | None, serve: bool) -> int:
    """Run one of the five systems end to end, or all of them on one service.

    A failure occurs along the way, and the system recovers from it. The demo starts what it needs
    on free ports and stops it afterward. It exits with 0 only if every check passes.

    \b
    Examples:
      holdfast demo passport --out passport     qr.png, passport.json, receipt.json
      holdfast demo all --out demo              all five, with a summary
      holdfast demo all --serve                 the same, and then a dashboard to look at
    """
    if serve and system != "all":
        raise click.UsageError("--serve needs the argument all")
    show = _load()
    show.forget_settings(os.environ)  # the processes that it starts inherit the environment
    os.environ[VARIABLE] = make_keys("demo")
    console = show.make_console()
    if system == "all":
        showing = show.show_all(SYSTEMS, out, database, console, keeps_serving=serve)
    else:
        showing = show.show(system, out, database, console)
    done = run(_interruptible(showing))
    return 0 if done else FAILED_CODE


async def _interruptible(work: Coroutine[Any, Any, bool]) -> bool:
    """Handle SIGTERM and a closed terminal like Ctrl-C."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.SIG_IGN:  # scripts ignore Ctrl-C for what they run in the background
        interrupt = signal.default_int_handler
    for which in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, interrupt)
    return await work


def _load() -> Any:
    try:
        return import_module("holdfast_systems.demos.show")
    except ImportError as error:
        raise ConfigurationError(
            f"demos need extra packages ({error}); run: pip install 'holdfast[all]'"
        ) from error
