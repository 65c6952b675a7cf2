"""`holdfast roles`: a database role for each kind of process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.operator import operator_option, recorded
from holdfast.cli.selection import json_lines_option, json_option
from holdfast.cli.session import FAILED_CODE, Group, say
from holdfast.cli.target import on_database, on_same_target
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.privileges import ROLES, Decisions, Grant, merged
from holdfast.domain.roles import InstalledRoles, RoleDifference

if TYPE_CHECKING:
    from holdfast.cli.display import Row

USES: Final[Mapping[str, str]] = {
    "api": "holdfast serve",
    "worker": "holdfast worker",
    "orchestrator": "holdfast worker --queues webhooks.orchestration",
    "delivery": "holdfast worker --queues webhooks.delivery",
    "operator": "operators' commands",
    "readonly": "dashboards, holdfast doctor",
}
LEGEND: Final = "S select, I insert, U update (lowercase: some columns), M maintain, X execute"


@click.group(cls=Group)
def roles() -> None:
    """Give each kind of process a database role with the least privileges. PostgreSQL only.

    \b
    Examples:
      holdfast roles install --app app:hf --passwords
      holdfast roles check
    """


@roles.command()
@click.option("--prefix", help="Prefix of the role names. Default: holdfast.")
@click.option("--passwords", is_flag=True, help="Give each role a new random password.")
@operator_option
@json_option
@on_database
async def install(
    app: Holdfast, prefix: str | None, passwords: bool, by: str, as_json: bool
) -> None:
    """Create the roles, and grant each exactly the privileges it needs.

    Run it after `holdfast migrate`, with the same login, which must be able to create roles. From
    then on, `holdfast migrate` keeps the roles up to date. Safe to repeat: where nothing differs,
    it changes nothing. Prints a database URL for each kind of process.

    \b
    Examples:
      holdfast roles install --app app:hf --passwords
      holdfast roles install --prefix shop
    """
    async with app, recorded(app, "roles.install", app.url_shown, by=by):
        done = await app.roles.install(prefix=prefix, passwords=passwords)
    if as_json:
        shown = {"prefix": done.roles.prefix, "changes": done.changes, "urls": done.urls}
        click.echo(msgspec.json.encode(shown))
        return
    for role, url in done.urls.items():
        click.echo(f"{role:<13} {url}")
    say(f"roles of {app.url_shown} are up to date; changes: {len(done.changes):,}")
    if passwords:
        say("store these URLs safely: the passwords can't be shown again")
    else:
        say(
            "new roles have no password; set all of them with --passwords, or one in psql:"
            f" \\password {done.roles.name('api')}"
        )


@roles.command("list")
@json_lines_option
@on_database
async def list_command(app: Holdfast, as_json: bool) -> None:
    """Show what each role may do with each table, view and function.

    \b
    Examples:
      holdfast roles list
      holdfast roles list --json | jq 'select(.role == "delivery")'
    """
    from holdfast.cli import display

    found = await app.roles.installed()
    if found is None:
        raise ConfigurationError(
            f"{app.url_shown} has no roles; run: {on_same_target('holdfast roles install')}"
        )
    decided = merged(found.decisions.values())
    if as_json:
        display.print_json_lines(decided.grants)
        return
    _print_roles(found)
    _print_matrix(decided)


def _print_roles(found: InstalledRoles) -> None:
    from holdfast.cli import display

    rows: list[Row] = [
        {"COLUMN": role, "ROLE": found.name(role), "FOR": use} for role, use in USES.items()
    ]
    rows += [
        {"COLUMN": "", "ROLE": caller, "FOR": "enqueues in its own transactions"}
        for caller in found.callers
    ]
    display.print_table(display.console(), rows, ["FOR"])
    click.echo()


def _print_matrix(decided: Decisions) -> None:
    from holdfast.cli import display

    names = {
        "TABLE": [table.name for table in decided.tables],
        "VIEW": decided.views,
        "FUNCTION": [function.name for function in decided.functions],
    }
    for kind, objects in names.items():
        if objects:
            display.print_table(display.console(), _matrix(kind, objects, decided), [kind])
            click.echo()
    click.echo(LEGEND)


def _matrix(kind: str, objects: Sequence[str], decided: Decisions) -> list[Row]:
    of_kind = [grant for grant in decided.grants if grant.kind == kind.lower()]

    def cell(name: str, role: str) -> str:
        return _letters(grant for grant in of_kind if (grant.object, grant.role) == (name, role))

    return [{kind: name, **{role: cell(name, role) for role in ROLES}} for name in sorted(objects)]


def _letters(grants: Iterable[Grant]) -> str:
    letters = {"SELECT": "S", "INSERT": "I", "UPDATE": "U", "MAINTAIN": "M", "EXECUTE": "X"}
    shown = {
        letters[grant.privilege] if grant.column is None else letters[grant.privilege].lower(): None
        for grant in grants
    }
    return "".join(shown) or "-"


@roles.command()
@json_lines_option
@on_database
async def check(app: Holdfast, as_json: bool) -> int:
    """Compare the database with the decisions about its roles. Changes nothing.

    Prints each difference and the statement that fixes it. The exit code is 1 if there are any.

    \b
    Examples:
      holdfast roles check --app app:hf
      HOLDFAST_DATABASE_URL=postgresql://localhost/shop holdfast roles check
    """
    from holdfast.cli import display

    found = await app.roles.check()
    if as_json:
        display.print_json_lines(found)
        return FAILED_CODE if found else 0
    for each in found:
        click.echo(each.text)
        click.echo(f"    {_remedy(each)}")
    if not found:
        say(f"roles of {app.url_shown} match the decisions")
        return 0
    say(f"differences: {len(found):,}; to fix them: {on_same_target('holdfast roles install')}")
    return FAILED_CODE


def _remedy(difference: RoleDifference) -> str:
    return difference.fix or "add it to privileges.toml in the package that creates it"


@roles.command("allow-enqueue")
@click.argument("role")
@click.option("--revoke", is_flag=True, help="Revoke this instead.")
@operator_option
@on_database
async def allow_enqueue(app: Holdfast, role: str, revoke: bool, by: str) -> None:
    """Let an application's own role enqueue jobs in its own transactions.

    The role may call the functions that enqueue jobs, and gets no access to any table.

    \b
    Examples:
      holdfast roles allow-enqueue shop_web
      holdfast roles allow-enqueue shop_web --revoke
    """
    action = "roles.revoke_enqueue" if revoke else "roles.allow_enqueue"
    async with app, recorded(app, action, role, by=by):
        await app.roles.allow_enqueue(role, revoke=revoke)
    click.echo(f"{role} may {'no longer ' if revoke else ''}enqueue in its own transactions")


@roles.command()
@click.option("--yes", "sure", is_flag=True, help="Do not ask for confirmation.")
@operator_option
@on_database
async def remove(app: Holdfast, sure: bool, by: str) -> None:
    """Remove the roles and row-level security, and give the schema back to this login.

    First, point all processes at this login: those that use a removed role stop working.

    \b
    Example:
      holdfast roles remove
    """
    if not sure:
        from holdfast.cli.change import confirm

        confirm(f"remove all roles of {app.url_shown}?")
    async with app, recorded(app, "roles.remove", app.url_shown, by=by):
        kept = await app.roles.remove()
    click.echo(f"removed the roles of {app.url_shown}; the schema now belongs to this login")
    for role, places in kept.items():
        say(f"role {role} was not dropped, because it is still used by {', '.join(places)}")
