"""`holdfast top`: the command, and the loop behind its screen."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.session import Command, run
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.overview import Meter, Overview, Rate

INTERVAL_SECONDS_MIN = 0.2
ONCE_SECONDS = 1.0
COLUMNS = 80  # where there is no terminal
SPARE_LINES = 8


@click.command(cls=Command)
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(min=INTERVAL_SECONDS_MIN),
    default=2.0,
    show_default=True,
    help="Seconds between reads of the database.",
)
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and exit.")
@target_options
def top(
    app: str | None, database: str | None, interval_seconds: float, once: bool, as_json: bool
) -> None:
    """Watch queues, workers, throughput, latency and failures, live.

    Changes nothing unless you pause a queue. Keys: q quits, tab switches views, ? lists the rest.
    Without an interactive terminal, it prints one screen and exits.

    \b
    Examples:
      holdfast top --app app:hf
      holdfast top --interval 0.5
      holdfast top --json | jq '.queues[] | select(.oldest_ready_seconds > 60)'
    """
    found = find_existing(app, database)
    if as_json:
        run(_print_json(found))
    elif once or not _can_be_drawn_on():
        run(_print_once(found))
    else:
        run(_watch(found, interval_seconds))


def _can_be_drawn_on() -> bool:
    from holdfast.cli import display

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return terminal and not display.console().is_dumb_terminal


async def _print_json(app: Holdfast) -> None:
    seen, meter = await _look(app)
    whole = msgspec.to_builtins(seen, enc_hook=str)
    whole["ended"] = [each._asdict() for each in seen.ended]
    whole["ended_last_minute"] = [each._asdict() for each in seen.ended_last_minute]
    whole["rate"] = _told(meter.rate())
    whole["rate_by_queue"] = {each.name: _told(meter.rate(each.name)) for each in seen.queues}
    click.echo(msgspec.json.encode(whole))


def _told(rate: Rate | None) -> dict[str, float] | None:
    return None if rate is None else rate._asdict()


async def _look(app: Holdfast) -> tuple[Overview, Meter]:
    """Rates need two readings."""
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
    lines = len(seen.queues) + SPARE_LINES
    columns = out.width if out.is_terminal else COLUMNS
    place = Place(app.url_shown, None)
    out.print(draw(View(), seen, meter, place, Size(columns, lines), live=False))


async def _watch(app: Holdfast, interval_seconds: float) -> None:
    from holdfast.cli.top.watch import Watch

    try:
        await Watch(app, interval_seconds).run()
    finally:
        await app.close()
