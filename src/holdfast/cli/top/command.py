"""`holdfast top`: watch queues, workers and failures, live or once."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.session import Command
from holdfast.cli.target import on_database
from holdfast.domain.overview import Meter, Overview

INTERVAL_SECONDS_MIN = 0.2
ONCE_SECONDS = 1.0
COLUMNS = 80  # without a terminal


@click.command(cls=Command)
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(min=INTERVAL_SECONDS_MIN),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="How often to read the database.",
)
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and exit.")
@on_database
async def top(app: Holdfast, interval_seconds: float, once: bool, as_json: bool) -> None:
    """Watch queues, workers and failures, live.

    Changes nothing unless you pause a queue. Press q to quit, tab to switch views, ? for all keys.
    Without an interactive terminal, it prints one screen and exits.

    \b
    Examples:
      holdfast top --app app:hf
      holdfast top --interval 0.5
      holdfast top --json | jq '.queues[] | select(.oldest_ready_seconds > 60)'
    """
    if as_json:
        await _print_json(app)
    elif once or not _has_screen():
        await _print_once(app)
    else:
        await _watch(app, interval_seconds)


def _has_screen() -> bool:
    from holdfast.cli import display

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return terminal and not display.console().is_dumb_terminal


async def _print_json(app: Holdfast) -> None:
    seen, meter = await _look(app)
    whole = msgspec.to_builtins(seen, enc_hook=str)
    whole["ended"] = [each._asdict() for each in seen.ended]
    whole["ended_last_minute"] = [each._asdict() for each in seen.ended_last_minute]

    def rate(queue: str | None = None) -> dict[str, float] | None:
        found = meter.rate(queue)
        return found and found._asdict()

    whole |= {"rate": rate(), "rate_by_queue": {each.name: rate(each.name) for each in seen.queues}}
    click.echo(msgspec.json.encode(whole))


async def _look(app: Holdfast) -> tuple[Overview, Meter]:
    """Read twice, because a rate needs two readings."""
    meter = Meter()
    async with app:
        first = await app.overview()
        meter.read(first.now, first.ended, first.ended_last_minute)
        await asyncio.sleep(ONCE_SECONDS)
        seen = await app.overview()
    meter.read(seen.now, seen.ended)
    return seen, meter


async def _print_once(app: Holdfast) -> None:
    from holdfast.cli import display
    from holdfast.cli.top.screen import Place, Size, draw
    from holdfast.cli.top.view import View

    out = display.console()
    seen, meter = await _look(app)
    columns = out.width if out.is_terminal else COLUMNS
    place = Place(app.url_shown, None)
    out.print(draw(View(), seen, meter, place, Size(columns, out.height), live=False))


async def _watch(app: Holdfast, interval_seconds: float) -> None:
    from holdfast.cli.top.watch import Watch

    try:
        await Watch(app, interval_seconds).run()
    finally:
        await app.close()
