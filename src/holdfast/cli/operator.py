"""Who does it, and why: what is noted beside a pause or a breaker that was opened by hand."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def operator() -> str:
    """This person on this machine, like ann@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def operator_options(command: F) -> F:
    """Give the command `--by` and `--because`."""
    command = click.option("--because", metavar="TEXT", help="Reason, shown to other operators.")(
        command
    )
    return click.option(
        "--by", default=operator, metavar="WHO", help="Who did it. Default: you@host."
    )(command)
