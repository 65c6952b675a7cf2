"""The group `holdfast webhooks`, and `holdfast webhooks replay`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from holdfast.cli.operator import operator_options
from holdfast.cli.selection import json_option, moment
from holdfast.cli.session import Group, say
from holdfast.cli.webhooks.dead import dead
from holdfast.cli.webhooks.events import events
from holdfast.cli.webhooks.sagas import sagas
from holdfast.cli.webhooks.subscriptions import subscriptions
from holdfast.cli.webhooks.target import Target, id_of, on_webhooks, tenant_option


@click.group(cls=Group)
def webhooks() -> None:
    """Manage webhooks: subscriptions, events, sagas, dead letters and replays.

    With --app, the application's own settings and presets apply; with --database, the defaults.

    \b
    Examples:
      holdfast webhooks subscriptions list --app app:hf
      holdfast webhooks replay --from 2h --to 1h --dry-run --app app:hf
    """


for group in (subscriptions, events, sagas, dead):
    webhooks.add_command(group)


@webhooks.command()
@click.option(
    "--from",
    "since",
    type=moment,
    required=True,
    metavar="TIME",
    help="The first events: a time, or an age such as 2h.",
)
@click.option(
    "--to",
    "until",
    type=moment,
    default="0s",
    metavar="TIME",
    help="Only events before this time. Default: now.",
)
@click.option(
    "--subscription",
    "subscription_id",
    type=id_of("subscription"),
    metavar="ID",
    help="Only to this subscription. Default: to all that want the events.",
)
@click.option("--dry-run", is_flag=True, help="Show the count; change nothing.")
@tenant_option
@operator_options
@json_option
@on_webhooks
async def replay(
    target: Target,
    since: datetime,
    until: datetime,
    subscription_id: UUID | None,
    dry_run: bool,
    tenant: str,
    by: str,
    because: str | None,
    as_json: bool,
) -> None:
    """Send the events of a time range again.

    The orchestrator starts the new sagas in small steps. Run it twice, and all is sent twice.

    \b
    Examples:
      holdfast webhooks replay --from 2h --to 1h --dry-run --app app:hf
      holdfast webhooks replay --from 2026-11-16T03:00Z --to 2026-11-16T05:00Z --tenant acme
    """
    from holdfast.cli.display import print_json_lines

    counted = await target.webhooks.count_replay(
        since, until, subscription_id=subscription_id, tenant=tenant
    )
    more = "" if counted.is_all else " at least"
    what = f"{more} {counted.events:,} events, {counted.sagas:,} sagas".strip()
    if dry_run:
        if as_json:
            print_json_lines([counted])
        else:
            click.echo(f"would replay {what}; nothing was changed")
        return
    asked = f"{since.isoformat()} to {until.isoformat()}"
    async with target.recorded("webhooks.replay", asked, by, because):
        made = await target.webhooks.replay(
            since, until, subscription_id=subscription_id, tenant=tenant
        )
    if as_json:
        print_json_lines([made])
        return
    click.echo(f"started replay {made.id}: {what}")
    say("workers of the queue webhooks.orchestration start its sagas")
