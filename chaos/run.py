"""One run on one store: load and faults, then quiet until all has ended, then the judgment."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos import faults
from chaos.faults import Fault, strike_in_calm, strike_until
from chaos.judge import ORDERS, PAYMENTS, ROWS, Account, Finding, Row, judge
from chaos.recovery import BOUND_SECONDS, Recovery, find_late, recoveries
from chaos.site import PostgresSite, Site, SqliteSite
from tests.support.processes import wait_until

STAFF_SECONDS = 0.1
ROUND_SECONDS = 45.0
CALM_SECONDS = 5.0  # until all are at work again
DRAIN_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
WAITING = "SELECT count(*) FROM jobs WHERE finished_at IS NULL"


@dataclass
class Outcome:
    """What a run on one store came to."""

    store: str
    phase: str = "starting"
    until: float = 0.0
    jobs: int = 0
    acknowledged: int = 0
    starts: int = 0
    again: int = 0  # runs of a job after its first one
    overlapping: int = 0  # runs that began while a run with an older lease went on
    payments: int = 0
    refused: int = 0  # requests of clients that failed with an error
    faults: list[Fault] = field(default_factory=list)
    ends: Counter[int] = field(default_factory=Counter)
    drain_seconds: float = 0.0
    recoveries: list[Recovery] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Pace:
    """Keeps the runs in step: the faults of one would disturb the calm of another, because all
    share the machine."""

    def __init__(self, runs: int, seconds: float) -> None:
        self._together = asyncio.Barrier(runs)
        self._seconds = seconds
        self.until = 0.0
        self._left_seconds = seconds

    async def next_round(self) -> float:
        """Wait for the others; return how long to inject faults, or 0 when the time is up."""
        now = time.monotonic()
        self.until = self.until or now + self._seconds
        self._left_seconds = self.until - now  # the last one to arrive decides for all
        await self._together.wait()
        return max(0.0, min(self._left_seconds, ROUND_SECONDS))

    async def calm(self) -> None:
        """Wait until no run injects faults."""
        await self._together.wait()


class ChaosRun:
    """`outcome` can be watched during the run."""

    def __init__(self, store: str, folder: Path, seed: int, kinds: Collection[str]) -> None:
        self.outcome = Outcome(store)
        self._random = Random(f"{seed}-{store}")
        self._kinds = kinds
        self._site = self._make_site(store, folder)

    def _make_site(self, store: str, folder: Path) -> Site:
        if store == "sqlite":
            return SqliteSite(folder, self._random)
        return PostgresSite(folder, self._random, clocks="clock" in self._kinds)

    async def run(self, pace: Pace) -> None:
        site, outcome = self._site, self.outcome
        staffing: asyncio.Task[None] | None = None
        try:
            await site.open()
            staffing = asyncio.create_task(self._keep_staffed())
            await self._see_work()
            outcome.phase = "faults"
            while round_seconds := await pace.next_round():
                outcome.until = pace.until
                await self._strike(time.monotonic() + round_seconds)
                await pace.calm()
                await self._strike_in_calm()
            outcome.phase = "draining"
            await self._drain()
            outcome.phase = "stopping"
            site.staffed = False
            await self._stop()
            outcome.phase = "judging"
            await self._judge()
        finally:
            if staffing is not None:
                staffing.cancel()
                await asyncio.wait([staffing])
            await site.close()

    async def _keep_staffed(self) -> None:
        while True:
            self._site.staff()
            await self._site.revive()
            for entry in self._site.ledger.read():
                self.outcome.starts += entry.what == "start"
                self.outcome.acknowledged += len(entry.ids)
            await asyncio.sleep(STAFF_SECONDS)

    async def _see_work(self) -> None:
        """Wait until jobs end, so that faults hit a working site."""
        await wait_until(lambda: self._site.ledger.counts["end"], "at work")

    async def _strike(self, until: float) -> None:
        loops = [
            self._strike_with(faults.PROCESSES, until),
            self._strike_with(faults.SURROUNDINGS[self._site.kind], until),
        ]
        await asyncio.gather(*loops)
        self._site.heal()

    async def _strike_with(self, kinds: dict[str, tuple[faults.Strike, int]], until: float) -> None:
        chosen = {name: kinds[name] for name in kinds if name in self._kinds}
        random = Random(self._random.getrandbits(32))
        async for fault in strike_until(self._site, random, until, chosen):
            self.outcome.faults.append(fault)

    async def _strike_in_calm(self) -> None:
        """See how long a dead worker's jobs take to start again, when nothing else is wrong."""
        await asyncio.sleep(CALM_SECONDS)
        until = time.monotonic() + BOUND_SECONDS
        try:
            async for fault in strike_in_calm(self._site):
                self.outcome.faults.append(fault)
        except AssertionError:  # no worker was busy in time
            text = "no job started for a minute, though nothing was wrong any more"
            self.outcome.findings.append(Finding("stuck", 5, text))
        await asyncio.sleep(until - time.monotonic())

    async def _drain(self) -> None:
        """Wait until all has ended; what has not by then is stuck."""
        self._site.dismiss_clients()
        began = time.monotonic()
        while time.monotonic() < began + DRAIN_SECONDS_MAX:
            with suppress(*faults.TROUBLES):
                ((waiting,),) = await self._site.execute(WAITING)
                if not waiting:
                    break
            await asyncio.sleep(STAFF_SECONDS)
        self.outcome.drain_seconds = time.monotonic() - began

    async def _stop(self) -> None:
        """Without faults, a worker exits on SIGTERM."""
        working = [role for role in self._site.workers if role.process is not None]
        processes = [role.process for role in working if role.process is not None]
        for process in processes:
            process.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for process in processes:
                    await process.ended(2 * STOP_SECONDS_MAX)
        for process in processes:
            if process.code not in (0, -signal.SIGKILL):
                text = f"{process.name} ended with {process.code} when it was told to stop"
                self.outcome.findings.append(Finding("wrong", 14, text))

    async def _judge(self) -> None:
        site, outcome = self._site, self.outcome
        site.ledger.read()
        account = Account(
            site.ledger.entries,
            [Row.of(values) for values in await site.execute(ROWS)],
            [(str(job), int(fence)) for job, fence in await site.execute(PAYMENTS)],
            [str(request) for (request,) in await site.execute(ORDERS)],
        )
        outcome.findings += judge(account)
        outcome.findings += find_late(account, outcome.faults)
        outcome.recoveries = recoveries(account, outcome.faults)
        outcome.jobs = len(account.rows)
        outcome.payments = len(account.payments)
        runs = [run for each in account.runs.values() for run in each]
        outcome.starts = len(runs)
        outcome.again = len(runs) - len(account.runs)
        outcome.overlapping = account.overlapping
        outcome.acknowledged = sum(len(entry.ids) for entry in account.of("told", "requeued"))
        outcome.refused = len(list(account.of("refused")))
        for role in site.workers:
            outcome.ends.update(role.ends)
