"""`holdfast secrets`: generate secret keys, count what they encrypt, re-encrypt with a new one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_option, recorded
from holdfast.cli.selection import json_lines_option
from holdfast.cli.session import FAILED_CODE, Group, say
from holdfast.cli.target import on_app, on_same_target
from holdfast.domain.encryption import SecretCount, make_keys
from holdfast.operations.secrets import VARIABLE


@click.group(cls=Group)
def secrets() -> None:
    """Rotate the keys that encrypt secrets in the database.

    The keys are in HOLDFAST_SECRET_KEYS, as name:key,name:key with the current one first.

    \b
    Examples:
      holdfast secrets new-key
      holdfast secrets status --app app:hf
    """


@secrets.command("new-key")
@click.argument("name", required=False)
def new_key(name: str | None) -> None:
    """Print a new key for HOLDFAST_SECRET_KEYS. Without NAME, its name is random.

    \b
    Examples:
      holdfast secrets new-key 2027-01
      export HOLDFAST_SECRET_KEYS=$(holdfast secrets new-key)
    """
    click.echo(make_keys(name))
    click.echo(
        f"keep this key outside the database, and set {VARIABLE} for every process; to rotate keys,"
        " first add it at the end of the list",
        err=True,
    )


@secrets.command()
@json_lines_option
@on_app
async def status(app: Holdfast, as_json: bool) -> None:
    """Count the secrets under each key, and those in plaintext.

    \b
    Examples:
      holdfast secrets status --app app:hf
      holdfast secrets status --app app:hf --json | jq 'select(.is_known == false)'
    """
    from holdfast.cli import display

    async with app:
        found = await app.secrets.status()
    display.print_all(found, display.print_secrets, "no secrets", as_json=as_json)


@secrets.command()
@operator_option
@on_app
async def reencrypt(app: Holdfast, by: str) -> int:
    """Encrypt with the current key what is in plaintext or under an old key.

    Safe to run while workers deliver, to interrupt and to repeat. The exit code is 1 if secrets are
    left, for example because their key is unknown here.

    \b
    Example:
      holdfast secrets reencrypt --app app:hf
    """

    def progress(kind: str, count: int) -> None:
        click.echo(f"{kind}: {count} re-encrypted", err=True)

    async with app:
        before = await app.secrets.status()
        async with recorded(app, "secret.reencrypt", ", ".join(_kinds(before)) or "nothing", by=by):
            done = await app.secrets.reencrypt(progress=progress)
    click.echo(f"re-encrypted {done.count} secret{'' if done.count == 1 else 's'}")
    if any(each.key_id is None for each in before):
        say(
            "some secrets were in plaintext, and still are in copies of the database: rotate them,"
            " or see docs/guides/secrets.md"
        )
    for each in done.left:
        again = on_same_target("holdfast secrets reencrypt")
        say(f"{each.kind}: {each.count} left{_why_left(each)}; to continue: {again}")
    return FAILED_CODE if done.left else 0


def _kinds(counts: Sequence[SecretCount]) -> list[str]:
    return sorted({each.kind for each in counts})


def _why_left(each: SecretCount) -> str:
    if each.key_id is None:
        return " in plaintext, just added by an older version"
    if each.is_known:
        return f" under {each.key_id}: just added, or encrypted with another key of that name"
    return f" under {each.key_id}, which is unknown here: add it to {VARIABLE}"
