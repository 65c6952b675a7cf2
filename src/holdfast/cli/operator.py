"""Record who paused a queue, opened a breaker or canceled jobs by hand, and why."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.domain.audit import Actor, Outcome
from holdfast.domain.errors import NotInThisStore, StoreError

F = TypeVar("F", bound=Callable[..., Any])


def operator() -> str:
    """Name the caller, for example ann@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user ID that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def actor(by: str | None = None) -> Actor:
    """The operator as the audit log shows them: a name that they chose, and their login."""
    login = operator()
    return Actor(name=by or login, address=f"{login} (command line)")


operator_option = click.option(
    "--by", default=operator, metavar="WHO", help="Your name. Default: you@host."
)


def operator_options(command: F) -> F:
    """Give the command --by and --because."""
    because = click.option("--because", metavar="TEXT", help="Reason, shown to other operators.")
    return operator_option(because(command))


@asynccontextmanager
async def recorded(
    app: Holdfast,
    action: str,
    target: str,
    *,
    jobs: int = 0,
    by: str | None = None,
    because: str | None = None,
) -> AsyncIterator[None]:
    """Add an entry to the audit log before the change in the block, and another one if it fails.
    In a store without an audit log, only make the change."""

    async def record(outcome: Outcome, jobs: int) -> None:
        with suppress(NotInThisStore):
            await app.audit.record(
                actor(by), action, target, jobs=jobs, because=because, outcome=outcome
            )

    await record("allowed", jobs)
    try:
        yield
    except Exception:
        with suppress(StoreError):
            await record("failed", 0)
        raise
