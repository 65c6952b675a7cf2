"""What the commands share: --debug, the event loop, exit codes, messages on stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.domain.secrets import masked
from holdfast.observability.logs import one_line

T = TypeVar("T")

FAILED_CODE = 1
USAGE_CODE = 2
CLEANUP_SECONDS_MAX = 2.0


@dataclass
class Session:
    debug: bool = False


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
    flat = " ".join(line.strip() for line in message.splitlines() if line.strip())
    click.echo(f"holdfast: {one_line(masked(flat))}", err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on a new event loop, on uvloop if it is installed."""
    runner = asyncio.Runner(loop_factory=_fastest_loop())
    try:
        return runner.run(work)
    finally:
        # Closing the loop waits for its tasks, generators and threads, some of which may never
        # end: a handler may ignore its cancellation.
        if not asyncio.all_tasks(runner.get_loop()) and _close_generators(runner.get_loop()):
            # Closing now waits for this executor instead of the threads of `asyncio.to_thread`.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            runner.close()


def _close_generators(loop: asyncio.AbstractEventLoop) -> bool:
    """Close the remaining async generators; return whether all closed in time."""
    closing = loop.create_task(loop.shutdown_asyncgens())
    done, _ = loop.run_until_complete(asyncio.wait({closing}, timeout=CLEANUP_SECONDS_MAX))
    return bool(done)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
