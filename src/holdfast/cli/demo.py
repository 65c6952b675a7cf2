"""`holdfast demo`: run one of the five systems end to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from holdfast.cli import session as sessions
from holdfast.cli.session import Command
from holdfast.domain.errors import ConfigurationError

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
def demo(system: str, out: Path, database: str | None) -> int:
    """Run one of the five systems end to end.

    A failure occurs along the way, and the system recovers from it. The demo starts what it needs
    on free ports and stops it afterward. It exits with 0 only if every check passes.

    \b
    Examples:
      holdfast demo passport --out passport     qr.png, passport.json, receipt.json
      holdfast demo all --out demo              all five, with a summary
    """
    show = _load()
    show.forget_settings(os.environ)  # the processes that it starts inherit the environment
    systems = list(SYSTEMS) if system == "all" else [system]
    console = show.make_console()
    done = sessions.run(_interruptible(show.show(systems, out, database, console)))
    return 0 if done else sessions.FAILED_CODE


async def _interruptible(work: Coroutine[Any, Any, bool]) -> bool:
    """Handle SIGTERM and a closed terminal like Ctrl-C."""
    for which in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.getsignal(signal.SIGINT))
    return await work


def _load() -> Any:
    try:
        return import_module("holdfast_systems.demos.show")
    except ImportError as error:
        raise ConfigurationError(
            f"demos need extra packages ({error}); run: pip install 'holdfast[all]'"
        ) from error
