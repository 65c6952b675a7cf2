"""`holdfast breakers`: list, open, close and reset breakers."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options, recorded
from holdfast.cli.selection import json_lines_option
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.errors import NotInThisStore
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.texts import pasted


@click.group(cls=ListingGroup)
def breakers() -> None:
    """List, open, close and reset breakers. Lists them if no command is given.

    \b
    Examples:
      holdfast breakers
      holdfast breakers open gateway --because "deploying until 3 pm"
    """


@breakers.command("list")
@json_lines_option
@on_database
async def list_command(app: Holdfast, as_json: bool) -> None:
    """List breakers, open ones first.

    A breaker is listed while it is open or has recent failures.

    \b
    Examples:
      holdfast breakers list --app app:hf
      holdfast breakers --json | jq .key
    """
    from holdfast.cli import display

    async with app:
        try:
            found = await app.breakers.list()
        except NotInThisStore as error:
            click.echo(str(error), err=True)
            return
    none = "no breakers: nothing has failed recently"
    display.print_all(found, display.print_breakers, none, as_json=as_json)


@breakers.command("open")
@click.argument("key")
@operator_options
@on_database
async def open_command(app: Holdfast, key: str, by: str, because: str | None) -> None:
    """Open a breaker: park its jobs until you close it.

    A breaker that you open by hand sends no probes.

    \b
    Example:
      holdfast breakers open gateway --because "deploying until 3 pm"
    """
    async with app:
        known = await app.breakers.keys()
        async with recorded(app, "breaker.open", key, by=by, because=because):
            await app.breakers.open(key, by=by, because=because)
    if key not in known:
        say(f"breaker {key} did not exist before{did_you_mean(key, known)}")
    closing = on_same_target(f"holdfast breakers close {pasted(key)}")
    click.echo(f"breaker {key} is open and parks its jobs. Close it with: {closing}")


@breakers.command()
@click.argument("key")
@operator_options
@on_database
async def close(app: Holdfast, key: str, by: str, because: str | None) -> None:
    """Close a breaker: unpark its jobs and reset its failure count.

    \b
    Example:
      holdfast breakers close gateway
    """
    async with app, recorded(app, "breaker.close", key, by=by, because=because):
        await app.breakers.close(key)
    click.echo(f"breaker {key} is closed; workers are releasing the jobs it had parked")


@breakers.command()
@click.argument("key")
@operator_options
@on_database
async def reset(app: Holdfast, key: str, by: str, because: str | None) -> None:
    """Close a breaker if it is open, and clear its history.

    \b
    Example:
      holdfast breakers reset gateway
    """
    async with app, recorded(app, "breaker.reset", key, by=by, because=because):
        await app.breakers.reset(key)
    click.echo(
        f"breaker {key} is closed and its history cleared;"
        " workers are releasing the jobs it had parked"
    )
