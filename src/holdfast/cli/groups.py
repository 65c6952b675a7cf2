"""`holdfast dead groups`: jobs that failed or died, grouped by error."""

from __future__ import annotations

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli import display
from holdfast.cli.session import say
from holdfast.domain.job import Filter


async def show_groups(
    app: Holdfast, filter: Filter, *, look_max: int, limit: int, as_json: bool
) -> None:
    async with app:
        found = await app.dead.groups(filter, look_max=look_max)
    shown = found.groups[:limit]
    if as_json:
        for group in shown:
            click.echo(msgspec.json.encode(group))
    elif shown:
        display.print_groups(shown)
    else:
        click.echo("no jobs", err=True)
    if not found.is_all:
        say(
            f"examined only the newest {found.looked_at:,} jobs; --look examines more,"
            " --since narrows the search"
        )
    if len(found.groups) > len(shown):
        say(f"{len(found.groups) - len(shown):,} smaller groups not shown; raise --limit")
