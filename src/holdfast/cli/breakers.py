"""`holdfast breakers`: list, open, close and reset breakers."""

from __future__ import annotations

from difflib import get_close_matches

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_options
from holdfast.cli.session import ListingGroup, run
from holdfast.cli.target import find_existing, target_options
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@target_options
def list_command(app: str | None, database: str | None, as_json: bool) -> None:
    """List breakers that are open or have recent failures, open ones first.

    \b
    Examples:
      holdfast breakers list --app app:hf
      holdfast breakers --json | jq .key
    """
    run(_list_breakers(find_existing(app, database), as_json=as_json))


@breakers.command("open")
@click.argument("key")
@operator_options
@target_options
def open_command(
    app: str | None, database: str | None, key: str, by: str, because: str | None
) -> None:
    """Open a breaker: park all its jobs, and send no probe, until you close it.

    \b
    Example:
      holdfast breakers open gateway --because "deploying until 3 pm"
    """
    run(_open(find_existing(app, database), key, by, because))


@breakers.command()
@click.argument("key")
@target_options
def close(app: str | None, database: str | None, key: str) -> None:
    """Close a breaker: unpark its jobs and reset its failure count.

    \b
    Example:
      holdfast breakers close gateway
    """
    run(_close(find_existing(app, database), key))


@breakers.command()
@click.argument("key")
@target_options
def reset(app: str | None, database: str | None, key: str) -> None:
    """Close a breaker if it is open, and clear its history.

    \b
    Example:
      holdfast breakers reset gateway
    """
    run(_reset(find_existing(app, database), key))


async def _list_breakers(app: Holdfast, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        found = await app.breakers.list()
    if as_json:
        for breaker in found:
            click.echo(msgspec.json.encode(breaker))
    elif found:
        display.print_breakers(found)
    else:
        click.echo("no breakers: nothing has failed recently", err=True)


async def _open(app: Holdfast, key: str, by: str, because: str | None) -> None:
    async with app:
        known = await app.breakers.keys()
        await app.breakers.open(key, by=by, because=because)
    if key not in known:
        close = "".join(f"; did you mean {each}?" for each in get_close_matches(key, known, n=1))
        click.echo(f"breaker {key} is new{close}", err=True)
    closing = f"holdfast breakers close {pasted(key)}"
    click.echo(f"breaker {key} is open and parks its jobs. Close it with: {closing}")


async def _close(app: Holdfast, key: str) -> None:
    async with app:
        await app.breakers.close(key)
    click.echo(f"breaker {key} is closed; workers are releasing the jobs it had parked")


async def _reset(app: Holdfast, key: str) -> None:
    async with app:
        await app.breakers.reset(key)
    click.echo(
        f"breaker {key} is closed and its history cleared;"
        " workers are releasing the jobs it had parked"
    )
