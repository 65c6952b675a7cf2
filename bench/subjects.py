"""Who is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bench.driver import Subject
from bench.targets import POSTGRES, RAW_POSTGRES, RAW_SQLITE, SQLITE
from tests.support.postgres import system_binaries


class Missing(NamedTuple):
    """A subject or a service that can't be had here."""

    name: str
    reason: str


def own(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"bench.adapters.{module}_adapter")


OWN = (
    Subject(RAW_POSTGRES, "postgresql", own("raw_postgres")),
    Subject(RAW_SQLITE, "sqlite", own("raw_sqlite")),
    Subject(POSTGRES, "postgresql", own("holdfast")),
    Subject(POSTGRES, "postgresql", own("holdfast"), "default"),
    Subject(SQLITE, "sqlite", own("holdfast")),
)


def find_subjects(names: Sequence[str], *, quick: bool) -> tuple[list[Subject], list[Missing]]:
    """Those that were named, or all; for a quick run Holdfast, the raw loops and the best peers."""
    found = [each for each in OWN if not names or each.name in names]
    if quick and not names:
        found = [each for each in found if each.variant == "best"]
    return found, []


@contextmanager
def started_services(wanted: set[str]) -> Iterator[tuple[dict[str, str], list[Missing]]]:
    """Start what is asked for beside PostgreSQL; answer addresses, and what can't be had."""
    missing = []
    if "postgresql" in wanted and system_binaries() is None:
        missing.append(Missing("postgresql", "PostgreSQL is not installed"))
    yield {}, missing
