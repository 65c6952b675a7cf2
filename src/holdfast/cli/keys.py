"""`holdfast keys`: create, list, rotate and revoke keys of the HTTP API."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import actor, operator_option
from holdfast.cli.selection import duration, json_lines_option, json_option, pace
from holdfast.cli.session import ListingGroup, say
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.keys import ADMIN, SCOPES, NewKey
from holdfast.operations.keys import OVERLAP_SECONDS

ALL = "all"


@click.group(cls=ListingGroup)
def keys() -> None:
    """Create, list, rotate and revoke keys of the HTTP API. Lists them if no command is given.

    \b
    Examples:
      holdfast keys create shop --tenant acme --scope read,enqueue
      holdfast keys
    """


def _scopes(value: str) -> list[str]:
    return [scope.strip() for scope in value.split(",")]


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=_scopes,
    multiple=True,
    required=True,
    metavar="SCOPE",
    help=f"What the key allows: {', '.join(SCOPES)}, or {ALL}. Repeat it or use commas.",
)
@click.option("--tenant", help="The only tenant that the key sees. Default: all tenants.")
@click.option(
    "--expires",
    "expires_in_seconds",
    type=duration,
    metavar="AGE",
    help="How long the key works, for example 90d. Default: until you revoke it.",
)
@click.option(
    "--rate",
    "requests_per_second",
    type=pace,
    metavar="N/s",
    help="Rate limit, for example 50/s. Default: 1000/s.",
)
@operator_option
@json_option
@on_database
async def create(
    app: Holdfast,
    name: str,
    scopes: tuple[list[str], ...],
    tenant: str | None,
    expires_in_seconds: float | None,
    requests_per_second: float | None,
    by: str,
    as_json: bool,
) -> None:
    """Create a key and print it. It can't be shown again.

    Scopes: read finds jobs; enqueue adds them; operate cancels, retries and requeues them, pauses
    queues and opens breakers; work leases jobs to workers; admin manages keys and reads the audit
    log.

    \b
    Examples:
      holdfast keys create shop --tenant acme --scope read,enqueue --expires 90d
      holdfast keys create operations --scope read --scope operate
      holdfast keys create root --scope all
    """
    async with app:
        made = await app.keys.create(
            name,
            scopes=_chosen(scopes, tenant),
            tenant=tenant,
            expires_in_seconds=expires_in_seconds,
            requests_per_second=requests_per_second,
            by=actor(by),
        )
    _print_new(made, as_json=as_json)


def _chosen(given: tuple[list[str], ...], tenant: str | None) -> list[str]:
    chosen = [scope for scopes in given for scope in scopes]
    if ALL not in chosen:
        return chosen
    every = [scope for scope in SCOPES if tenant is None or scope != ADMIN]
    return every + [scope for scope in chosen if scope != ALL]


def _print_new(made: NewKey, *, as_json: bool) -> None:
    from holdfast.cli import display

    if as_json:
        display.print_json_lines([made])
        return
    click.echo(made.key)
    say(f"created key {made.id} ({made.name}); store it safely: it can't be shown again")
    click.echo('try it: curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8000/v1/me', err=True)


@keys.command("list")
@click.option("--all", "ended", is_flag=True, help="Also list expired and revoked keys.")
@json_lines_option
@on_database
async def list_command(app: Holdfast, ended: bool, as_json: bool) -> None:
    """List keys with their tenant, scopes and expiry.

    \b
    Examples:
      holdfast keys list --app app:hf
      holdfast keys --all --json | jq .name
    """
    from holdfast.cli import display

    async with app:
        found = await app.keys.list(ended=ended)
    display.print_all(found, display.print_keys, "no keys", as_json=as_json)


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap",
    "overlap_seconds",
    type=duration,
    default=f"{OVERLAP_SECONDS / 3600:g}h",
    show_default=True,
    metavar="AGE",
    help="How long the old key keeps working.",
)
@operator_option
@json_option
@on_database
async def rotate(
    app: Holdfast, key_id: str, overlap_seconds: float, by: str, as_json: bool
) -> None:
    """Replace a key with a new one that has the same rights, and print the new key.

    The old key keeps working for a while, so that clients can switch.

    \b
    Examples:
      holdfast keys rotate 7kq2mzv4d3xa
      holdfast keys rotate 7kq2mzv4d3xa --overlap 1h
    """
    async with app:
        made = await app.keys.rotate(key_id, overlap_seconds=overlap_seconds, by=actor(by))
        old = await app.keys.get(key_id)
    _print_new(made, as_json=as_json)
    if not as_json and old.expires_at is not None:
        revoking = on_same_target(f"holdfast keys revoke {key_id}")
        until = f"{old.expires_at:%Y-%m-%d %H:%M} UTC"
        say(f"key {key_id} works until {until}; to end it now: {revoking}")


@keys.command()
@click.argument("key_id", metavar="ID")
@operator_option
@on_database
async def revoke(app: Holdfast, key_id: str, by: str) -> None:
    """Revoke a key for good. Servers reject it within two seconds.

    \b
    Example:
      holdfast keys revoke 7kq2mzv4d3xa
    """
    async with app:
        key = await app.keys.revoke(key_id, by=actor(by))
    click.echo(f"key {key_id} ({key.name}) is revoked; servers reject it within two seconds")
