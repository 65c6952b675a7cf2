"""What the long runs share: a durable PostgreSQL, and a progress line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.postgres import Server, start_all, system_binaries


@contextmanager
def postgres() -> Iterator[Server]:
    binaries = system_binaries()
    if binaries is None:
        sys.exit("PostgreSQL is not installed; to leave it out: --stores=sqlite")
    server = Server("bench", binaries, durable=True)
    try:
        start_all([server])
        yield server
    finally:
        server.remove()


def tell(text: str) -> None:
    """Show this on the last line of the terminal, if there is one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
