"""The faults. Every fault ends on its own, and restores what it changed.

Two loops inject faults at the same time, one into processes, one into their environment, so that
faults overlap.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from random import Random

import asyncpg

from chaos.ledger import open_runs
from chaos.network import Network
from chaos.site import LEASE_SECONDS, PostgresSite, Role, Site, SqliteSite, send
from tests.support.processes import wait_until

PAUSE_SECONDS_MAX = 0.8
BUSY_PROCESSES = 4
FREEZE_SECONDS = 4 * LEASE_SECONDS  # at most, until others have the jobs
ENTRIES_MAX = 1000  # of the ledger, where the newest are looked at
TROUBLES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error)


@dataclass
class Fault:
    """What was done, from when to when, and to which processes."""

    kind: str
    began: float
    ended: float = 0.0
    pids: list[int] = field(default_factory=list)


Strike = Callable[[Fault, Site, Random], Awaitable[None]]
PROCESSES: dict[str, tuple[Strike, int]] = {}
SURROUNDINGS: dict[str, dict[str, tuple[Strike, int]]] = {"sqlite": {}, "postgresql": {}}
# These slow down everything else on the machine, or take long to start.
HEAVY = ("crowd", "clock")
KILL_IN_CALM = "kill in calm"
FREEZE_IN_CALM = "freeze in calm"


def strikes_processes(weight: int = 1) -> Callable[[Strike], Strike]:
    def note(strike: Strike) -> Strike:
        PROCESSES[kind_of(strike)] = (strike, weight)
        return strike

    return note


def strikes(*stores: str, weight: int = 1) -> Callable[[Strike], Strike]:
    def note(strike: Strike) -> Strike:
        for store in stores:
            SURROUNDINGS[store][kind_of(strike)] = (strike, weight)
        return strike

    return note


def kind_of(strike: Strike) -> str:
    return strike.__name__.replace("_", " ")


def all_kinds() -> list[str]:
    return [*PROCESSES, *{kind for each in SURROUNDINGS.values() for kind in each}]


async def strike_until(
    site: Site, random: Random, until: float, kinds: dict[str, tuple[Strike, int]]
) -> AsyncIterator[Fault]:
    """Inject faults; yield what was done. Every kind gets its turn before one comes more often
    than its weight says."""
    bag: list[str] = []
    while kinds and time.monotonic() < until:
        await asyncio.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
        if not bag:
            bag = [kind for kind in sorted(kinds) for _ in range(kinds[kind][1])]
            random.shuffle(bag)
        kind = bag.pop()
        fault = Fault(kind, time.monotonic())
        site.note(f"{kind} begins")
        # Another fault may have removed what this one works on.
        with suppress(*TROUBLES):
            await kinds[kind][0](fault, site, Random(random.getrandbits(32)))
        fault.ended = time.monotonic()
        site.note(f"{kind} ends; processes: {fault.pids}")
        yield fault


def victims(site: Site, roles: list[Role], random: Random) -> list[int]:
    """A process that was started, one that it started, or all of them."""
    trees = site.trees(roles)
    if not trees:
        return []
    tree = random.choice(trees)
    return tree if random.random() < 0.2 else [random.choice(tree)]


@strikes_processes(weight=4)
async def kill(fault: Fault, site: Site, random: Random) -> None:
    fault.pids = victims(site, site.workers, random)
    for pid in fault.pids:
        send(pid, signal.SIGKILL)


async def strike_in_calm(site: Site) -> AsyncIterator[Fault]:
    """Kill the busiest process, and freeze the next one until others have its jobs: it comes back
    as a ghost. Whoever calls this sees to it that all else is well."""
    pids = await busiest(site)
    killed = Fault(KILL_IN_CALM, time.monotonic(), pids=pids)
    for pid in killed.pids:
        send(pid, signal.SIGKILL)
    killed.ended = time.monotonic()
    yield killed
    pids = await busiest(site, killed.pids)
    frozen = Fault(FREEZE_IN_CALM, time.monotonic(), pids=pids)
    site.freeze(frozen.pids)
    while not await site.is_writable():  # it must not have an SQLite file locked
        site.thaw(frozen.pids)
        await asyncio.sleep(0.1)
        site.freeze(frozen.pids)
    jobs = {run.start.job for run in open_runs(site.ledger.entries) if run.start.pid in frozen.pids}
    with suppress(AssertionError):  # they may have been canceled
        await wait_until(lambda: have_started(site, jobs, frozen), "started again", FREEZE_SECONDS)
    site.thaw(frozen.pids)
    frozen.ended = time.monotonic()
    yield frozen


def have_started(site: Site, jobs: set[str], frozen: Fault) -> bool:
    return any(
        entry.what == "start" and entry.job in jobs and entry.at > frozen.began
        for entry in reversed(site.ledger.entries[-ENTRIES_MAX:])
    )


async def busiest(site: Site, but: Sequence[int] = ()) -> list[int]:
    """The process with most jobs at their first attempt."""
    found: list[int] = []

    def find() -> bool:
        alive = {pid for tree in site.trees(site.workers) for pid in tree} - set(but)
        starts = [run.start for run in open_runs(site.ledger.entries)]
        running = Counter(each.pid for each in starts if each.pid in alive and each.attempt == 1)
        found[:] = [pid for pid, _ in running.most_common(1)]
        return bool(found)

    await wait_until(find, "at work")
    return found


@strikes_processes()
async def kill_client(fault: Fault, site: Site, random: Random) -> None:
    for pid in victims(site, site.clients, random):
        send(pid, signal.SIGKILL)


@strikes_processes(weight=4)
async def freeze(fault: Fault, site: Site, random: Random) -> None:
    """Stop a process for a while, around the length of a lease."""
    fault.pids = victims(site, site.workers, random)
    site.freeze(fault.pids)
    await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 3))
    site.thaw(fault.pids)


@strikes_processes()
async def freeze_client(fault: Fault, site: Site, random: Random) -> None:
    pids = victims(site, site.clients, random)
    site.freeze(pids)
    await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 1.5))
    site.thaw(pids)


@strikes_processes(weight=2)
async def terminate(fault: Fault, site: Site, random: Random) -> None:
    fault.pids = victims(site, site.workers, random)
    for pid in fault.pids:
        send(pid, signal.SIGTERM)


@strikes_processes(weight=2)
async def starve(fault: Fault, site: Site, random: Random) -> None:
    """Give a worker a tenth of the time, as a limit on its container's CPU does."""
    fault.pids = victims(site, site.workers, random)
    until = time.monotonic() + LEASE_SECONDS * random.uniform(0.5, 1.5)
    while time.monotonic() < until:
        site.freeze(fault.pids)
        await asyncio.sleep(0.09)
        site.thaw(fault.pids)
        await asyncio.sleep(0.01)


@strikes("sqlite", "postgresql")
async def dependency(fault: Fault, site: Site, random: Random) -> None:
    site.switch.touch()
    await asyncio.sleep(random.uniform(0.5, 5))
    site.switch.unlink(missing_ok=True)


@strikes("sqlite", "postgresql")
async def crowd(fault: Fault, site: Site, random: Random) -> None:
    """Let others take the machine."""
    context = multiprocessing.get_context("spawn")
    seconds = LEASE_SECONDS * random.uniform(0.5, 1.5)
    busy = [context.Process(target=compute, args=(seconds,)) for _ in range(BUSY_PROCESSES)]
    for process in busy:
        process.start()
    try:
        await asyncio.sleep(seconds)
    finally:
        for process in busy:
            process.kill()


def compute(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))


@strikes("sqlite", weight=3)
async def lock(fault: Fault, site: Site, random: Random) -> None:
    """Hold the lock of the whole file."""
    assert isinstance(site, SqliteSite)
    with closing(sqlite3.connect(site.path, timeout=0, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(LEASE_SECONDS * random.uniform(0.1, 1.5))


@strikes("sqlite")
async def reader(fault: Fault, site: Site, random: Random) -> None:
    """Keep a read open so that no checkpoint can finish."""
    assert isinstance(site, SqliteSite)
    with closing(sqlite3.connect(site.path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM jobs").fetchall()
        await asyncio.sleep(LEASE_SECONDS * random.uniform(1, 2))


@strikes("sqlite", weight=2)
async def full_disk(fault: Fault, site: Site, random: Random) -> None:
    assert isinstance(site, SqliteSite)
    if site.disk.can_be_full:
        site.disk.fill()
        await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 1.5))
        site.disk.make_room()


def networks(site: Site, random: Random) -> Iterable[Network]:
    """Both ways to the database, or one of them."""
    assert isinstance(site, PostgresSite)
    return random.choice([site.networks, [random.choice(site.networks)]])


@strikes("postgresql", weight=2)
async def cut(fault: Fault, site: Site, random: Random) -> None:
    for network in networks(site, random):
        network.cut()


@strikes("postgresql", weight=2)
async def cut_some(fault: Fault, site: Site, random: Random) -> None:
    for network in networks(site, random):
        network.cut_some(random)


@strikes("postgresql", weight=3)
async def cut_at_commit(fault: Fault, site: Site, random: Random) -> None:
    """Before the server hears of it, or when it has committed."""
    cuts = [
        network.cut_at_commit(b"", before=random.random() < 0.5)
        for network in networks(site, random)
    ]
    await asyncio.sleep(random.uniform(0, LEASE_SECONDS))
    for each in cuts:
        each.done.set()


@strikes("postgresql", weight=3)
async def lose_answers(fault: Fault, site: Site, random: Random) -> None:
    for network in networks(site, random):
        network.cut_answers(b"", times=random.randint(1, 5))
    await asyncio.sleep(1)


@strikes("postgresql", weight=2)
async def stall(fault: Fault, site: Site, random: Random) -> None:
    """Pass nothing on, without ending a connection."""
    stalled = list(networks(site, random))
    for network in stalled:
        network.stall()
    await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 2))
    for network in stalled:
        network.heal()


@strikes("postgresql")
async def lose_clients(fault: Fault, site: Site, random: Random) -> None:
    """End connections, while the server takes them for alive: its transactions stay open."""
    lost = list(networks(site, random))
    for network in lost:
        network.lose_clients()
    await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 1.5))
    for network in lost:
        network.heal()


@strikes("postgresql")
async def slow_network(fault: Fault, site: Site, random: Random) -> None:
    slow = list(networks(site, random))
    for network in slow:
        network.slow_down(random.uniform(0.02, 0.2))
    await asyncio.sleep(LEASE_SECONDS * random.uniform(0.5, 1.5))
    for network in slow:
        network.heal()


@strikes("postgresql", weight=2)
async def restart(fault: Fault, site: Site, random: Random) -> None:
    """In order, by a crash, or as a power cut ends it."""
    assert isinstance(site, PostgresSite)
    assert site.server is not None
    stop = random.choice([site.server.stop, site.server.crash, site.server.kill])
    await site.blocking(stop)
    await site.blocking(site.server.start)


@strikes("postgresql", weight=2)
async def terminate_backends(fault: Fault, site: Site, random: Random) -> None:
    await site.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.5"
    )


@strikes("postgresql")
async def restart_pooler(fault: Fault, site: Site, random: Random) -> None:
    assert isinstance(site, PostgresSite)
    if site.bouncer is not None:
        await site.blocking(site.bouncer.restart)


@strikes("postgresql", weight=2)
async def lock_rows(fault: Fault, site: Site, random: Random) -> None:
    await hold(site, "SELECT id FROM holdfast.jobs ORDER BY random() LIMIT 20 FOR UPDATE", random)


@strikes("postgresql")
async def lock_table(fault: Fault, site: Site, random: Random) -> None:
    await hold(site, "LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE", random)


@strikes("postgresql")
async def open_transaction(fault: Fault, site: Site, random: Random) -> None:
    """Hold back vacuum."""
    await hold(site, "SELECT pg_current_xact_id()", random)


async def hold(site: Site, sql: str, random: Random) -> None:
    """Run this in a transaction, and leave that open for a while."""
    connection = await asyncpg.connect(site.url)
    try:
        async with connection.transaction():
            await connection.execute(sql, timeout=LEASE_SECONDS)
            await asyncio.sleep(LEASE_SECONDS * random.uniform(0.2, 1.5))
    finally:
        connection.terminate()


@strikes("postgresql")
async def clock(fault: Fault, site: Site, random: Random) -> None:
    """Set a worker's clock forward or back."""
    assert isinstance(site, PostgresSite)
    if site.clock is not None:
        site.clock.set(random.choice(["-1h", "+1h", "-3s", "+3s"]))
        await asyncio.sleep(LEASE_SECONDS * random.uniform(0.5, 2))
        site.clock.set("+0")
