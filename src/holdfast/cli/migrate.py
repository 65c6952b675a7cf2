"""`holdfast migrate`: migrate the database schema."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.session import Command, run
from holdfast.cli.target import find_target


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:NAME]", required=False)
@click.option("--database", metavar="URL", help="Database URL. Default: $HOLDFAST_DATABASE_URL.")
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 if migrations are pending."
)
def migrate(app: str | None, database: str | None, check: bool) -> int:
    """Migrate the database schema to the version of this code.

    Run it before you deploy: workers of the previous version keep working on the new schema.

    \b
    Examples:
      holdfast migrate app:hf
      HOLDFAST_DATABASE_URL=postgresql://localhost/shop holdfast migrate
      holdfast migrate app:hf --check
    """
    found = find_target(app, database)
    return run(_check(found) if check else _migrate(found))


async def _migrate(app: Holdfast) -> int:
    steps = await app.migrate()
    for step in steps:
        click.echo(f"applied {step}")
    click.echo(f"{app.url_shown} is up to date")
    return 0


async def _check(app: Holdfast) -> int:
    if app.url_shown.startswith("sqlite:"):
        click.echo(f"{app.url_shown}: SQLite files are migrated when they are opened")
        return 0
    async with app:  # Refuses what this code can't run on, and says what to do.
        click.echo(f"{app.url_shown} is up to date")
    return 0
