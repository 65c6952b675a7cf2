"""Find the webhooks that a command works on, and what its options have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.loop import run
from holdfast.cli.operator import recorded
from holdfast.cli.target import app_option, database_option, find_existing, name_of_app
from holdfast.domain.job import DEFAULT_TENANT

if TYPE_CHECKING:
    from holdfast.webhooks import Webhooks

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Target:
    """An app and its webhooks."""

    def __init__(self, app: Holdfast, webhooks: Webhooks) -> None:
        self.app = app
        self.webhooks = webhooks

    @asynccontextmanager
    async def recorded(
        self, action: str, target: object, by: str, because: str | None = None
    ) -> AsyncIterator[None]:
        """Add an entry to the audit log before the change in the block."""
        async with recorded(self.app, action, str(target), by=by, because=because):
            yield


def on_webhooks(command: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run the command on the webhooks of the app that --app names, or on those with the default
    settings in the --database."""

    @app_option
    @database_option
    @wraps(command)
    def on_target(app: str | None, database: str | None, **options: Any) -> T:
        webhooks = _webhooks()
        found = find_existing(app, database)
        named = name_of_app(app, database)
        made = webhooks.of(found) if named else webhooks(found)

        async def work() -> T:
            async with found:
                return await command(Target(found, made), **options)

        return run(work())

    return on_target


def _webhooks() -> type[Webhooks]:
    try:
        from holdfast.webhooks import Webhooks
    except ImportError as error:
        raise click.ClickException(
            f"webhooks need more packages ({error}); run: pip install 'holdfast[webhooks]'"
        ) from error
    return Webhooks


def id_of(what: str) -> Callable[[str], UUID]:
    def parse(value: str) -> UUID:
        try:
            return UUID(value)
        except ValueError:
            example = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
            raise click.BadParameter(
                f"{value!r} is not the ID of a {what}; expected one like {example}"
            ) from None

    return parse


subscription_argument = click.argument("subscription_id", metavar="ID", type=id_of("subscription"))
saga_argument = click.argument("saga_id", metavar="ID", type=id_of("saga"))
letter_argument = click.argument("dead_letter_id", metavar="ID", type=id_of("dead letter"))
tenant_option = click.option(
    "--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose webhooks."
)


def after_option(what: str) -> Callable[[F], F]:
    return click.option(
        "--after", type=id_of(what), metavar="ID", help=f"Continue after this {what}."
    )
