"""Kill workers with -9 at random for minutes, then account for every job:
`python -m bench.crashes --seconds 600`.

Each worker is a supervisor with two processes; supervisors and their children are hit alike. Some
jobs kill their own process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random

from bench.parts import postgres, tell
from holdfast import State
from tests.promises.stage import Stage, random_seed
from tests.support.processes import Process, pause

WORKERS = 2
QUEUED_JOBS_MIN = 100
MAX_ATTEMPTS = 100
KILL_SECONDS_MAX = 0.8
LEASE_SECONDS = 3.0  # what a killed supervisor leaves behind waits so long
DRAIN_SECONDS_MAX = 300.0
ROWS = """
SELECT id, name, state, fence FROM jobs UNION ALL SELECT id, name, state, fence FROM history
"""


class CrashRun:
    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._random = Random(seed)
        self._workers: list[Process] = []
        self.jobs = 0
        self.kills = 0

    async def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            tell(f"{left:.0f} s left: {self.jobs:,} jobs, {self.kills:,} kills")
            await self._enqueue()
            self._workers = [each for each in self._workers if each.code is None]
            while len(self._workers) < WORKERS:
                self._workers.append(self._start())
            await pause(self._random.random() * KILL_SECONDS_MAX)
            self._kill_one()
        await self._drain()

    async def _enqueue(self) -> None:
        """Keep some jobs waiting; one of two hundred kills its process."""
        waiting = sum(
            count.jobs for count in await self._stage.hf.counts() if count.state is State.QUEUED
        )
        if waiting >= QUEUED_JOBS_MIN:
            return
        linger = self._stage.jobs.linger.options(max_attempts=MAX_ATTEMPTS)
        calls = [linger.call(self._random.random() / 5) for _ in range(QUEUED_JOBS_MIN)]
        if self._random.random() < 0.5:
            calls.append(self._stage.jobs.crash.options(max_attempts=2).call())
        self.jobs += len(await self._stage.hf.enqueue_many(calls))

    def _start(self, *arguments: str, concurrency: int = 10) -> Process:
        return self._stage.worker(
            "--processes=2", *arguments, concurrency=concurrency, lease_seconds=LEASE_SECONDS
        )

    def _kill_one(self) -> None:
        worker = self._random.choice(self._workers)
        with suppress(ProcessLookupError, FileNotFoundError):
            victims = [worker.pid, *descendants(worker.pid)]
            os.kill(self._random.choice(victims), signal.SIGKILL)
            self.kills += 1

    async def _drain(self) -> None:
        tell("draining")
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
            await worker.ended()
        last = self._start("--until-empty", concurrency=100)
        code = await last.ended(DRAIN_SECONDS_MAX)
        assert code == 0, f"the last worker ended with {code}:\n{last.text[-4000:]}"


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [each for child in map(int, children) for each in [child, *descendants(child)]]


async def check(stage: Stage, jobs: int) -> None:
    """Nothing is lost, the innocent succeeded once, and what killed its process is dead."""
    rows = await stage.fetch(ROWS)
    assert len(rows) == jobs, f"{len(rows)} of {jobs} jobs are there"
    assert len({row[0] for row in rows}) == jobs, "a job stands in two places"
    starts, finishes = stage.by_job("start"), stage.by_job("finish")
    for job_id, name, state, fence in rows:
        expected = State.DEAD if name == "crash" else State.SUCCEEDED
        assert state == expected, f"{name} {job_id} ended as {state}"
        fences = [entry["fence"] for entry in starts[str(job_id)]]
        assert fences == sorted(set(fences)), f"{job_id} was started twice with one fence"
        finished = [entry["fence"] for entry in finishes[str(job_id)]]
        assert name == "crash" or finished.count(fence - 1) == 1, f"{job_id} finished: {finished}"


@asynccontextmanager
async def staged(kind: str) -> AsyncIterator[Stage]:
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-soak-"))
        if kind == "postgresql":
            url = stack.enter_context(postgres()).url("postgres")
        else:
            url = f"sqlite:///{name}/jobs.db"
        stage = Stage(url, Path(name))
        try:
            await stage.hf.migrate()
            yield stage
        finally:
            await stage.close()


async def crash_run(kind: str, seconds: float, seed: int) -> str:
    async with staged(kind) as stage:
        run = CrashRun(stage, seed)
        await run.run(seconds)
        tell("checking")
        await check(stage, run.jobs)
        tell("")
        return f"{kind}: {run.kills:,} kills in {seconds:g} s, {run.jobs:,} jobs: all accounted for"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for each store")
    parser.add_argument("--stores", default="sqlite,postgresql")
    parser.add_argument("--seed", type=int, default=random_seed())
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    for kind in options.stores.split(","):
        print(asyncio.run(crash_run(kind, options.seconds, options.seed)), flush=True)


if __name__ == "__main__":
    main()
