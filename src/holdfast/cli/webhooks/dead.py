"""`holdfast webhooks dead`: dead letters of webhooks."""

from __future__ import annotations

from uuid import UUID

import click

from holdfast.cli.operator import operator_options
from holdfast.cli.selection import json_lines_option, json_option, limit_option
from holdfast.cli.session import ListingGroup
from holdfast.cli.webhooks.target import (
    Target,
    after_option,
    letter_argument,
    on_webhooks,
    tenant_option,
)


@click.group(cls=ListingGroup)
def dead() -> None:
    """List, show and requeue dead letters. Lists them if no command is given.

    \b
    Example:
      holdfast webhooks dead --app app:hf
    """


@dead.command("list")
@tenant_option
@limit_option("dead letters")
@after_option("dead letter")
@json_lines_option
@on_webhooks
async def list_command(
    target: Target, tenant: str, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List a tenant's dead letters, newest first.

    \b
    Examples:
      holdfast webhooks dead list --tenant acme
      holdfast webhooks dead list --json | jq .final_error_code
    """
    from holdfast.cli.display import print_all
    from holdfast.cli.webhooks.display import print_letters

    found = await target.webhooks.dead_letters(tenant=tenant, limit=limit, after=after)
    print_all(found, print_letters, "no dead letters", as_json=as_json)


@dead.command()
@letter_argument
@json_option
@on_webhooks
async def show(target: Target, dead_letter_id: UUID, as_json: bool) -> None:
    """Show a dead letter with its payload and the attempts of its saga.

    \b
    Example:
      holdfast webhooks dead show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    from holdfast.cli.display import print_json_lines
    from holdfast.cli.webhooks.display import print_attempts, print_letters

    letter = await target.webhooks.dead_letter(dead_letter_id)
    if as_json:
        print_json_lines([letter])
        return
    print_letters([letter])
    click.echo(f"\n{letter.payload_snapshot}\n")
    print_attempts(await target.webhooks.attempts(letter.saga_id))


@dead.command()
@letter_argument
@operator_options
@json_option
@on_webhooks
async def requeue(
    target: Target, dead_letter_id: UUID, by: str, because: str | None, as_json: bool
) -> None:
    """Start a new saga for a dead letter. The old saga does not change.

    Run it twice, and you get the same new saga.

    \b
    Example:
      holdfast webhooks dead requeue 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("dead_letter.requeue", dead_letter_id, by, because):
        saga = await target.webhooks.requeue(dead_letter_id)
    if as_json:
        from holdfast.cli.display import print_json_lines

        print_json_lines([saga])
        return
    click.echo(f"dead letter {dead_letter_id} is requeued as saga {saga.id}")
