"""What one run of the command carries along, and how it ends."""

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
CLEAN_UP_SECONDS_MAX = 2.0


@dataclass
class Session:
    debug: bool = False


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.find_object(Session).debug = True  # type: ignore[union-attr]


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )


class Command(click.Command):
    """A command that takes --debug wherever it is written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())


class Group(click.Group):
    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())


class ListingGroup(Group):
    """A group whose command `list` is meant if none is named."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        first = next((word for word in words if word != "--debug"), "--json")
        if first.startswith("-") and first not in context.help_option_names:
            words = ["list", *words]
        return super().parse_args(context, words)


def say(message: str) -> None:
    """Print one line for people, like `holdfast: there is no job ...`, to stderr."""
    flat = " ".join(line.strip() for line in message.splitlines() if line.strip())
    click.echo(f"holdfast: {one_line(masked(flat))}", err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on a new event loop; on uvloop's where it is installed."""
    runner = asyncio.Runner(loop_factory=_fastest_loop())
    try:
        return runner.run(work)
    finally:
        # Closing it waits for every task, and a canceled handler may still never end; nor
        # may a generator that it left in the middle.
        if not asyncio.all_tasks(runner.get_loop()) and _generators_end(runner.get_loop()):
            # Nor is there a limit to the threads that `asyncio.to_thread` may have left behind.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            runner.close()


def _generators_end(loop: asyncio.AbstractEventLoop) -> bool:
    """Close the async generators that are left; answer whether they let themselves be closed."""
    closing = loop.create_task(loop.shutdown_asyncgens())
    done, _ = loop.run_until_complete(asyncio.wait({closing}, timeout=CLEAN_UP_SECONDS_MAX))
    return bool(done)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
