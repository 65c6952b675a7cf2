"""`holdfast breakers`: see what jobs depend on, and hold them or let them go by hand."""

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
    """See the breakers; open, close and reset them. Without a command: list them.

    \b
    Examples:
      holdfast breakers
      holdfast breakers open gateway --because "they deploy until 3 pm"
    """


@breakers.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@target_options
def list_command(app: str | None, database: str | None, as_json: bool) -> None:
    """List the breakers of which something is known, open ones first.

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
    """Hold all jobs of this key, and send none ahead, until it is closed by hand.

    \b
    Example:
      holdfast breakers open gateway --because "they deploy until 3 pm"
    """
    run(_open(find_existing(app, database), key, by, because))


@breakers.command()
@click.argument("key")
@target_options
def close(app: str | None, database: str | None, key: str) -> None:
    """Let the jobs go that an open breaker holds, and begin to count failures anew.

    \b
    Example:
      holdfast breakers close gateway
    """
    run(_close(find_existing(app, database), key))


@breakers.command()
@click.argument("key")
@target_options
def reset(app: str | None, database: str | None, key: str) -> None:
    """Close a breaker if it is open, and forget all that is known of it.

    \b
    Example:
      holdfast breakers reset gateway
    """
    run(_reset(find_existing(app, database), key))


async def _list_breakers(app: Holdfast, *, as_json: bool) -> None:
    from holdfast.cli import display

    async with app:
        found = await app.breakers()
    if as_json:
        for breaker in found:
            click.echo(msgspec.json.encode(breaker))
    elif found:
        display.print_breakers(found)
    else:
        click.echo("no breakers: nothing that jobs depend on has failed lately", err=True)


async def _open(app: Holdfast, key: str, by: str, because: str | None) -> None:
    async with app:
        known = await app.known_breakers()
        await app.open_breaker(key, by=by, because=because)
    if key not in known:
        close = "".join(f"; did you mean {each}?" for each in get_close_matches(key, known, n=1))
        click.echo(f"breaker {key} was unknown until now{close}", err=True)
    closing = f"holdfast breakers close {pasted(key)}"
    click.echo(f"breaker {key} is open and holds its jobs; to let them go: {closing}")


async def _close(app: Holdfast, key: str) -> None:
    async with app:
        await app.close_breaker(key)
    click.echo(f"breaker {key} is closed; workers let the jobs go that it held")


async def _reset(app: Holdfast, key: str) -> None:
    async with app:
        await app.reset_breaker(key)
    click.echo(f"breaker {key} is closed and forgotten; workers let the jobs go that it held")
