"""`holdfast webhooks events`: publish events by hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
import msgspec

from holdfast.cli.selection import json_option
from holdfast.cli.session import Group
from holdfast.cli.webhooks.target import Target, id_of, on_webhooks, tenant_option


@click.group(cls=Group)
def events() -> None:
    """Publish events.

    \b
    Example:
      holdfast webhooks events send order.paid '{"order": 1001}' --app app:hf
    """


def _payload(value: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise click.BadParameter("the payload must be a JSON object, like {}") from None


@events.command()
@click.argument("event_type", metavar="TYPE")
@click.argument("payload", type=_payload, metavar="JSON")
@click.option(
    "--id", "event_id", type=id_of("event"), metavar="ID", help="The same ID twice is one event."
)
@tenant_option
@json_option
@on_webhooks
async def send(
    target: Target,
    event_type: str,
    payload: dict[str, Any],
    event_id: UUID | None,
    tenant: str,
    as_json: bool,
) -> None:
    """Publish an event to the tenant's subscriptions that want it.

    \b
    Example:
      holdfast webhooks events send order.paid '{"order": 1001}' --tenant acme --app app:hf
    """
    event = await target.webhooks.publish(event_type, payload, id=event_id, tenant=tenant)
    if as_json:
        from holdfast.cli.display import print_json_lines

        print_json_lines([event])
        return
    sagas = await target.webhooks.sagas(event_id=event.id, tenant=tenant)
    many = "" if len(sagas) == 1 else "s"
    click.echo(f"published event {event.id}, with {len(sagas)} saga{many}")
