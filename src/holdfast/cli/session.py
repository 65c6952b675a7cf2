"""What the commands share: --debug, exit codes, messages on stderr."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.domain.secrets import masked

FAILED_CODE = 1
USAGE_CODE = 2


class Session:
    debug = False


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.find_object(Session).debug = True  # type: ignore[union-attr]


class Command(click.Command):
    """A command that takes --debug in any position."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_set_debug,
                help="Show a traceback if the command fails.",
            )
        )


class Group(Command, click.Group):
    command_class = Command


class ListingGroup(Group):
    """A group that runs its command `list` if none is named."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        first = next((word for word in words if word != "--debug"), "--json")
        if first.startswith("-") and first not in context.help_option_names:
            words = ["list", *words]
        return super().parse_args(context, words)


def say(message: str) -> None:
    """Print one line on stderr, prefixed with `holdfast:`."""
    from holdfast.observability.logs import one_line  # which most commands don't need

    flat = " ".join(line.strip() for line in message.splitlines() if line.strip())
    click.echo(f"holdfast: {one_line(masked(flat))}", err=True)


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
