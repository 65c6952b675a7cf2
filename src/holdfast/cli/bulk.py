"""`holdfast bulk`: list, show, start, pause, resume and cancel bulk changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options, recorded
from holdfast.cli.selection import json_lines_option, json_option, limit_option
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.bulk import BulkChange, BulkState

FOLLOW_SECONDS = 1.0


def change_id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not the ID of a bulk change; see: {on_same_target('holdfast bulk list')}"
        ) from None


id_argument = click.argument("change_id", metavar="ID", type=change_id)


@click.group(cls=ListingGroup)
def bulk() -> None:
    """List, show, start, pause, resume and cancel bulk changes. Lists them if no command is given.

    The HTTP API creates bulk changes, and servers run them: see `holdfast serve`.

    \b
    Examples:
      holdfast bulk
      holdfast bulk show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --follow
    """


@bulk.command("list")
@limit_option("bulk changes")
@json_lines_option
@on_database
async def list_command(app: Holdfast, limit: int, as_json: bool) -> None:
    """List bulk changes with their progress, newest first.

    \b
    Examples:
      holdfast bulk list --app app:hf
      holdfast bulk --json | jq .state
    """
    from holdfast.cli import display
    from holdfast.cli.bulk_display import print_changes

    async with app:
        page = await app.bulk.list(limit)
    display.print_all(page.changes, print_changes, "no bulk changes", as_json=as_json)


@bulk.command()
@id_argument
@click.option("--follow", is_flag=True, help="Wait until it ends or pauses, with a progress bar.")
@json_option
@on_database
async def show(app: Holdfast, change_id: UUID, follow: bool, as_json: bool) -> None:
    """Show one bulk change: its jobs and progress, who created it and why.

    \b
    Examples:
      holdfast bulk show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
      holdfast bulk show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --follow
    """
    from holdfast.cli.bulk_display import print_change

    async with app:
        change = await app.bulk.get(change_id)
        if follow:
            change = await _follow(app, change)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(change, enc_hook=str), indent=2))
    else:
        print_change(change)


async def _follow(app: Holdfast, change: BulkChange) -> BulkChange:
    from holdfast.cli.change import Bar

    with Bar(change.action, change.total) as bar:
        while change.state is BulkState.RUNNING:
            bar.show(change.done)
            await asyncio.sleep(FOLLOW_SECONDS)
            change = await app.bulk.get(change.id)
    return change


@bulk.command()
@id_argument
@operator_options
@on_database
async def start(app: Holdfast, change_id: UUID, by: str, because: str | None) -> None:
    """Start a previewed bulk change. Servers (`holdfast serve`) run it.

    \b
    Example:
      holdfast bulk start 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    await _change(app, "start", app.bulk.start, change_id, by, because)
    say(f"to follow it: {_command('show', change_id)} --follow")


@bulk.command()
@id_argument
@operator_options
@on_database
async def pause(app: Holdfast, change_id: UUID, by: str, because: str | None) -> None:
    """Pause a running bulk change. It changes no further job until you resume it.

    \b
    Example:
      holdfast bulk pause 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --because "too many retries"
    """
    await _change(app, "pause", app.bulk.pause, change_id, by, because)
    say(f"to resume it: {_command('resume', change_id)}")


@bulk.command()
@id_argument
@operator_options
@on_database
async def resume(app: Holdfast, change_id: UUID, by: str, because: str | None) -> None:
    """Resume a paused bulk change where it stopped.

    \b
    Example:
      holdfast bulk resume 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    await _change(app, "resume", app.bulk.resume, change_id, by, because)


@bulk.command()
@id_argument
@operator_options
@on_database
async def cancel(app: Holdfast, change_id: UUID, by: str, because: str | None) -> None:
    """Cancel a bulk change for good. Jobs that it has already changed stay changed.

    \b
    Example:
      holdfast bulk cancel 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    await _change(app, "cancel", app.bulk.cancel, change_id, by, because)


async def _change(
    app: Holdfast,
    verb: str,
    apply: Callable[[UUID], Awaitable[BulkChange]],
    change_id: UUID,
    by: str,
    because: str | None,
) -> None:
    async with app:
        change = await app.bulk.get(change_id)
        left = change.total - change.done
        async with recorded(app, f"bulk.{verb}", str(change_id), jobs=left, by=by, because=because):
            change = await apply(change_id)
    click.echo(f"bulk change {change.id} is {change.state}: {done_of(change)}")


def done_of(change: BulkChange) -> str:
    return f"{change.done:,} of {change.total:,} jobs done"


def _command(verb: str, change_id: UUID) -> str:
    return on_same_target(f"holdfast bulk {verb} {change_id}")
