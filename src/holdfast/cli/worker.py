"""`holdfast worker`: run jobs until told to stop."""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.session import Command, run
from holdfast.cli.target import load_app
from holdfast.observability import logs

LEVELS = ("debug", "info", "warning", "error")


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:NAME")
@click.option("--concurrency", type=click.IntRange(min=1), help="Jobs to run at the same time.")
@click.option("--queues", metavar="A,B:10", help="Only these queues; B runs at most 10 at a time.")
@click.option("--until-empty", is_flag=True, help="End when no job is running or due.")
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    help="auto: readable in a terminal, JSON lines elsewhere.",
)
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info")
def worker(app: str, log_format: logs.Format | None, log_level: str, **choices: Any) -> None:
    """Run the jobs of a Holdfast object until SIGTERM or Ctrl-C.

    The first signal lets the running jobs finish within the grace time and hands back what can't.

    \b
    Examples:
      holdfast worker app:hf
      holdfast worker app:hf --concurrency 50 --queues mail,images:4
      holdfast worker app:hf --until-empty
    """
    found = load_app(app)
    # Logging that the user's module has set up stays, unless a format was asked for.
    if log_format or not logs.configured():
        logs.configure(log_format or "auto", log_level)
    run(_work(found, choices))


async def _work(app: Holdfast, choices: dict[str, Any]) -> None:
    async with app:
        await app.run_worker(**choices)
