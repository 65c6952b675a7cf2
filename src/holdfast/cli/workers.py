"""`holdfast workers`: list workers."""

from __future__ import annotations

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.session import Command, run
from holdfast.cli.target import find_existing, target_options
from holdfast.domain.errors import NotInThisStore


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@target_options
def workers(app: str | None, database: str | None, as_json: bool) -> None:
    """List workers: the queues they serve, their load, and when they were last seen.

    \b
    Example:
      holdfast workers --app app:hf
    """
    run(_list_workers(find_existing(app, database), as_json=as_json))


async def _list_workers(app: Holdfast, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        try:
            found = await app.workers.list()
        except NotInThisStore as error:
            click.echo(str(error), err=True)
            return
    if as_json:
        for worker in found:
            click.echo(msgspec.json.encode(worker))
    elif found:
        display.print_workers(sorted(found, key=lambda each: (each.lost, each.started_at)))
    else:
        click.echo("no workers", err=True)
