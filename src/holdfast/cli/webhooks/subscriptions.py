"""`holdfast webhooks subscriptions`: where events are sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from holdfast.cli.operator import operator_option, operator_options
from holdfast.cli.selection import duration, json_lines_option, json_option, limit_option
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.webhooks.target import (
    Target,
    after_option,
    on_webhooks,
    subscription_argument,
    tenant_option,
)

if TYPE_CHECKING:
    from holdfast.webhooks import NewSubscription


@click.group(cls=ListingGroup)
def subscriptions() -> None:
    """Add, list, change, disable and delete subscriptions. Lists them if no command is given.

    \b
    Examples:
      holdfast webhooks subscriptions --app app:hf
      holdfast webhooks subscriptions add https://example.org/hooks --app app:hf
    """


@subscriptions.command("list")
@tenant_option
@limit_option("subscriptions")
@after_option("subscription")
@json_lines_option
@on_webhooks
async def list_command(
    target: Target, tenant: str, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List a tenant's subscriptions, oldest first.

    \b
    Examples:
      holdfast webhooks subscriptions list --app app:hf
      holdfast webhooks subscriptions list --tenant acme --json | jq .url
    """
    from holdfast.cli.display import print_all
    from holdfast.cli.webhooks.display import print_subscriptions

    found = await target.webhooks.subscriptions(tenant=tenant, limit=limit, after=after)
    print_all(found, print_subscriptions, "no subscriptions", as_json=as_json)


@subscriptions.command()
@click.argument("url")
@click.option(
    "--type", "event_types", multiple=True, metavar="TYPE", help="Only these events; repeatable."
)
@click.option("--preset", default="standard", show_default=True, help="How requests are made.")
@tenant_option
@operator_option
@json_option
@on_webhooks
async def add(
    target: Target,
    url: str,
    event_types: tuple[str, ...],
    preset: str,
    tenant: str,
    by: str,
    as_json: bool,
) -> None:
    """Send a tenant's events to a URL, and print the secret that signs them. It can't be shown
    again.

    \b
    Examples:
      holdfast webhooks subscriptions add https://example.org/hooks --type order.paid
      holdfast webhooks subscriptions add https://example.org/hooks --tenant acme --app app:hf
    """
    async with target.recorded("subscription.create", tenant, by):
        made = await target.webhooks.subscribe(
            url, event_types=event_types, preset=preset, tenant=tenant
        )
    _print_new(made, "created", as_json=as_json)


def _print_new(made: NewSubscription, done: str, *, as_json: bool) -> None:
    from holdfast.cli.display import print_json_lines

    if as_json:
        print_json_lines([made])
        return
    click.echo(made.secret)
    say(f"{done} subscription {made.id}; store the secret safely: it can't be shown again")


@subscriptions.command()
@subscription_argument
@click.option("--url", help="Where to send events from now on.")
@click.option(
    "--type", "event_types", multiple=True, metavar="TYPE", help="Only these events; repeatable."
)
@click.option("--all-types", is_flag=True, help="All events.")
@operator_option
@json_option
@on_webhooks
async def change(
    target: Target,
    subscription_id: UUID,
    url: str | None,
    event_types: tuple[str, ...],
    all_types: bool,
    by: str,
    as_json: bool,
) -> None:
    """Change the URL or the event types of a subscription.

    \b
    Examples:
      holdfast webhooks subscriptions change 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --all-types
    """
    if all_types and event_types:
        raise click.UsageError("pass --type or --all-types, not both")
    if url is None and not event_types and not all_types:
        raise click.UsageError("nothing to change; pass --url, --type or --all-types")
    types = event_types if event_types or all_types else None
    async with target.recorded("subscription.change", subscription_id, by):
        changed = await target.webhooks.change(subscription_id, url=url, event_types=types)
    if as_json:
        from holdfast.cli.display import print_json_lines

        print_json_lines([changed])
        return
    click.echo(f"subscription {subscription_id} is changed")


@subscriptions.command()
@subscription_argument
@operator_options
@on_webhooks
async def disable(target: Target, subscription_id: UUID, by: str, because: str | None) -> None:
    """Send nothing more to a subscription. Its open sagas are canceled.

    \b
    Example:
      holdfast webhooks subscriptions disable 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("subscription.disable", subscription_id, by, because):
        await target.webhooks.disable(subscription_id)
    click.echo(f"subscription {subscription_id} is disabled; its open sagas are being canceled")


@subscriptions.command()
@subscription_argument
@operator_options
@on_webhooks
async def enable(target: Target, subscription_id: UUID, by: str, because: str | None) -> None:
    """Send new events to a subscription again.

    \b
    Example:
      holdfast webhooks subscriptions enable 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("subscription.enable", subscription_id, by, because):
        await target.webhooks.enable(subscription_id)
    click.echo(f"subscription {subscription_id} is enabled")
    say("to send the events that it missed, use: holdfast webhooks replay")


@subscriptions.command()
@subscription_argument
@operator_options
@on_webhooks
async def delete(target: Target, subscription_id: UUID, by: str, because: str | None) -> None:
    """Delete a subscription and its secrets. Its open sagas are canceled.

    \b
    Example:
      holdfast webhooks subscriptions delete 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("subscription.delete", subscription_id, by, because):
        await target.webhooks.delete(subscription_id)
    click.echo(f"subscription {subscription_id} is deleted; its open sagas are being canceled")


@subscriptions.command()
@subscription_argument
@click.option(
    "--keep",
    "keep_seconds",
    type=duration,
    default="1d",
    show_default=True,
    metavar="AGE",
    help="How long the old secrets sign, too. Use 0s if one leaked.",
)
@operator_option
@json_option
@on_webhooks
async def rotate(
    target: Target, subscription_id: UUID, keep_seconds: float, by: str, as_json: bool
) -> None:
    """Give a subscription a new secret, and print it. It can't be shown again.

    \b
    Examples:
      holdfast webhooks subscriptions rotate 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e --keep 7d
    """
    async with target.recorded("subscription.rotate", subscription_id, by):
        renewed = await target.webhooks.rotate_secret(subscription_id, keep_seconds=keep_seconds)
    _print_new(renewed, "rotated the secret of", as_json=as_json)


@subscriptions.command()
@subscription_argument
@operator_option
@json_option
@on_webhooks
async def test(target: Target, subscription_id: UUID, by: str, as_json: bool) -> None:
    """Send a test event to one subscription.

    \b
    Example:
      holdfast webhooks subscriptions test 01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e
    """
    async with target.recorded("subscription.test", subscription_id, by):
        event = await target.webhooks.send_test(subscription_id)
        (saga,) = await target.webhooks.sagas(event_id=event.id, tenant=event.tenant)
    if as_json:
        from holdfast.cli.display import print_json_lines

        print_json_lines([saga])
        return
    click.echo(f"started saga {saga.id}")
    say(f"to see its attempts: holdfast webhooks sagas show {saga.id}")
