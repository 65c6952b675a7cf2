"""`holdfast migrate`: migrate the database schema."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.loop import run
from holdfast.cli.operator import recorded
from holdfast.cli.session import Command
from holdfast.cli.target import database_option, find_target


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:NAME]", required=False)
@database_option
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if migrations are pending."
)
def migrate(app: str | None, database: str | None, check: bool) -> None:
    """Migrate the database schema to the version of this code.

    Run it before you deploy: workers of the previous version keep working on the new schema.

    \b
    Examples:
      holdfast migrate app:hf
      HOLDFAST_DATABASE_URL=postgresql://localhost/shop holdfast migrate
      holdfast migrate app:hf --check
    """
    found = find_target(app, database)
    run(_check(found) if check else _migrate(found))


async def _migrate(app: Holdfast) -> None:
    applied = await app.migrate()
    for step in applied:
        click.echo(f"applied {step}")
    if applied:  # by now the audit log exists
        async with app, recorded(app, "schema.migrate", ", ".join(applied)):
            pass
    click.echo(f"{app.url_shown} is up to date")


async def _check(app: Holdfast) -> None:
    if app.url_shown.startswith("sqlite:"):
        click.echo(f"{app.url_shown}: SQLite files are migrated when they are opened")
        return
    async with app:  # fails, and says what to do, if this code can't run on the schema
        click.echo(f"{app.url_shown} is up to date")
