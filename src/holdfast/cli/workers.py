"""`holdfast workers`: list workers."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.selection import json_lines_option
from holdfast.cli.session import Command
from holdfast.cli.target import on_database
from holdfast.domain.errors import NotInThisStore


@click.command(cls=Command)
@json_lines_option
@on_database
async def workers(app: Holdfast, as_json: bool) -> None:
    """List workers with their queues, load and last heartbeat.

    \b
    Example:
      holdfast workers --app app:hf
    """
    from holdfast.cli import display

    async with app:
        try:
            found = await app.workers.list()
        except NotInThisStore as error:
            click.echo(str(error), err=True)
            return
    if not as_json:
        found = sorted(found, key=lambda each: (each.lost, each.started_at))
    display.print_all(found, display.print_workers, "no workers", as_json=as_json)
