"""Record who paused a queue, opened a breaker or canceled jobs by hand, and why."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def operator() -> str:
    """Name the caller, for example ann@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user ID that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def operator_options(command: F) -> F:
    """Give the command --by and --because."""
    because = click.option("--because", metavar="TEXT", help="Reason, shown to other operators.")
    by = click.option("--by", default=operator, metavar="WHO", help="Your name. Default: you@host.")
    return by(because(command))
