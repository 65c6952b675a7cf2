"""`holdfast webhooks sagas`: deliveries, and their attempts."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec

from holdfast.cli.operator import operator_options
from holdfast.cli.selection import json_lines_option, json_option, limit_option
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.webhooks.target import (
    Target,
    after_option,
    id_of,
    on_webhooks,
    saga_argument,
    tenant_option,
)

STATUSES = ("Pending", "InFlight", "Delivered", "DeadLettered", "Canceled")


@click.group(cls=ListingGroup)
def sagas() -> None:
    """List, show and cancel sagas. Lists them if no command is given.

    \b
    Example:
      holdfast webhooks sagas --status Pending --app app:hf
    """


@sagas.command("list")
@tenant_option
@click.option("--status", type=click.Choice(STATUSES), help="Only sagas with this status.")
@click.option(
    "--subscription",
    "subscription_id",
    type=id_of("subscription"),
    metavar="ID",
    help="Only sagas of this subscription.",
)
@limit_option("sagas")
@after_option("saga")
@json_lines_option
@on_webhooks
async def list_command(
    target: Target,
    tenant: str,
    status: str | None,
    subscription_id: UUID | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List a tenant's sagas, newest first.

    \b
    Examples:
      holdfast webhooks sagas list --tenant acme --status DeadLettered
      holdfast webhooks sagas list --json | jq .id
    """
    from holdfast.cli.display import print_all
    from holdfast.cli.webhooks.display import print_sagas

    page = await target.webhooks.list_sagas(
        tenant=tenant, status=status, subscription_id=subscription_id, limit=limit, after=after
    )
    print_all(page.sagas, print_sagas, "no sagas", as_json=as_json)
    if page.after is not None:
        say(f"there may be more; continue with --after {page.after}")


@sagas.command()
@saga_argument
@json_option
@on_webhooks
async def show(target: Target, saga_id: UUID, as_json: bool) -> None:
    """Show one saga with its attempts.

    \b
    Example:
      holdfast webhooks sagas show 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    from holdfast.cli.display import print_json_lines
    from holdfast.cli.webhooks.display import print_attempts, print_sagas

    saga = await target.webhooks.saga(saga_id)
    attempts = await target.webhooks.attempts(saga_id)
    if as_json:
        print_json_lines([msgspec.structs.asdict(saga) | {"attempts": attempts}])
        return
    print_sagas([saga])
    if attempts:
        click.echo()
        print_attempts(attempts)


@sagas.command()
@saga_argument
@operator_options
@on_webhooks
async def cancel(target: Target, saga_id: UUID, by: str, because: str | None) -> None:
    """Cancel a saga that has not ended.

    A request that is being sent may still arrive.

    \b
    Example:
      holdfast webhooks sagas cancel 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("saga.cancel", saga_id, by, because):
        await target.webhooks.cancel(saga_id)
    click.echo(f"saga {saga_id} is canceled")
