"""Who is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.driver import Subject
from bench.environments import Unavailable, environments
from bench.services import rabbitmq, redis
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
OWN_NAMES = {each.name for each in OWN}
QUICK_PEERS = ("pgqueuer", "graphile")  # those that the floors and goals name
SERVICES = {"rabbitmq": rabbitmq, "redis": redis}


def find_subjects(names: Sequence[str], *, quick: bool) -> tuple[list[Subject], list[Missing]]:
    """Those that were named, or all; for a quick run Holdfast, the raw loops and the best peers."""

    def wanted(name: str, variant: str) -> bool:
        if names:
            return name in names
        return not quick or (variant == "best" and name in (*QUICK_PEERS, *OWN_NAMES))

    found = [each for each in OWN if wanted(each.name, each.variant)]
    missing = []
    for peer in environments().values():
        variants = [variant for variant in peer.variants if wanted(peer.name, variant)]
        if not variants:
            continue
        try:
            command = tuple(peer.command())
        except Unavailable as error:
            missing.append(Missing(peer.name, str(error)))
        else:
            found += [
                Subject(peer.name, peer.service, command, variant, variant in peer.slow_variants)
                for variant in variants
            ]
    return found, missing


@contextmanager
def started_services(wanted: set[str]) -> Iterator[tuple[dict[str, str], list[Missing]]]:
    """Start the requested services beside PostgreSQL; return addresses, and what is unavailable."""
    addresses, missing = {}, []
    if "postgresql" in wanted and system_binaries() is None:
        missing.append(Missing("postgresql", "PostgreSQL is not installed"))
    with ExitStack() as stack:
        for name in sorted(wanted & SERVICES.keys()):
            try:
                addresses[name] = stack.enter_context(SERVICES[name]())
            except Unavailable as error:
                missing.append(Missing(name, str(error)))
        yield addresses, missing
