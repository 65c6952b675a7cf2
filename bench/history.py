"""What finished jobs cost those that come after them: `python -m bench.history --jobs 5000000`.

Two databases of each kind, one with a short past and one with a long one, are measured in turn in
the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.parts import postgres, tell
from bench.past import write_past
from holdfast import Holdfast, State
from holdfast.domain.job import Claimed, Filter, Settlement
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim
from holdfast.stores.registry import make_store

REPEATS = 20
CLAIM_JOBS = 100
PAGE_JOBS = 50
EMPTY_JOBS = 5000

Milliseconds = dict[str, list[float]]


async def nothing(number: int) -> None:
    return None


class Bench:
    """One database and its figures."""

    def __init__(self, url: str, drain_jobs: int) -> None:
        self.url = url
        self.found: Milliseconds = defaultdict(list)
        self._drain_jobs = drain_jobs

    async def run_once(self) -> None:
        await self._start_up()
        async with Holdfast(self.url) as hf:
            job = hf.job(nothing)
            await hf.enqueue_many([job.call(1) for _ in range(CLAIM_JOBS * REPEATS)])
            await self._claims(hf)
            await self._lists(hf)
            calls = [job.call(1) for _ in range(self._drain_jobs)]
            for first in range(0, len(calls), 10_000):
                await hf.enqueue_many(calls[first : first + 10_000])
            began = time.perf_counter()
            await hf.run_worker(concurrency=500, until_empty=True)
            self.found["drain"].append((time.perf_counter() - began) * 1000)

    async def _start_up(self) -> None:
        """Connect, check the schema, and find out that there is nothing to do."""
        store = make_store(self.url, Seam(), Holdfast(self.url).settings)
        with self._timed("start-up"):
            await store.open()
            await store.claim(Claim("bench", 1, 30, ["nothing"]))
            await store.reclaim(500)
        await store.close()

    async def _claims(self, hf: Holdfast) -> None:
        """Claim in batches; claimed jobs are released."""
        store = make_store(self.url, Seam(), hf.settings)
        await store.open()
        claimed: list[Claimed] = []
        for _ in range(REPEATS):
            with self._timed(f"claim of {CLAIM_JOBS}"):
                claimed += await store.claim(Claim("bench", CLAIM_JOBS, 30, ["nothing"]))
        await store.settle(
            [
                Settlement(job_id=job.id, fence=job.fence, state=State.QUEUED, attempt_back=True)
                for job in claimed
            ]
        )
        await store.close()

    async def _lists(self, hf: Holdfast) -> None:
        (dead,) = (await hf.jobs.list(Filter(states=(State.DEAD,)), 1)).jobs
        looks: dict[str, Callable[[], Awaitable[Any]]] = {
            "list: all": lambda: hf.jobs.list(Filter(), PAGE_JOBS),
            "list: dead": lambda: hf.jobs.list(Filter(states=(State.DEAD,)), PAGE_JOBS),
            "list: one queue": lambda: hf.jobs.list(Filter(queue="default"), PAGE_JOBS),
            "list: one name that is rare": lambda: hf.jobs.list(Filter(name="rare"), PAGE_JOBS),
            "counts": hf.jobs.counts,
            "get": lambda: hf.get(dead.id),
        }
        for name, look in looks.items():
            for _ in range(REPEATS):
                with self._timed(name):
                    await look()

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.found[name].append((time.perf_counter() - began) * 1000)


@contextmanager
def urls(kind: str) -> Iterator[tuple[str, str]]:
    """Two fresh databases, as durable as they are by default."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield f"sqlite:///{folder}/empty.db", f"sqlite:///{folder}/full.db"
        return
    with postgres() as server:
        yield server.url("postgres"), server.url("template1")


async def measure(kind: str, options: argparse.Namespace) -> tuple[Bench, Bench]:
    jobs, rounds = options.jobs, options.rounds
    with urls(kind) as (empty_url, full_url):
        empty, full = Bench(empty_url, options.drain), Bench(full_url, options.drain)
        for bench in (empty, full):
            hf = Holdfast(bench.url)
            await hf.migrate()
            await hf.close()
        # A few, so that lists find as much in both.
        await write_past(empty_url, EMPTY_JOBS, lambda done: None)
        await write_past(full_url, jobs, lambda done: tell(f"{kind}: {done:,} of {jobs:,} jobs"))
        for turn in range(rounds):
            tell(f"{kind}: round {turn + 1} of {rounds}")
            for bench in (empty, full) if turn % 2 else (full, empty):
                await bench.run_once()
        return empty, full


def table(kind: str, jobs: int, empty: Bench, full: Bench) -> str:
    lines = [
        f"| {kind} | {EMPTY_JOBS:,} finished jobs behind, ms | {jobs:,}, ms | ratio |",
        "|---|---:|---:|---:|",
    ]
    for name, found in empty.found.items():
        before, after = median(found), median(full.found[name])
        lines.append(f"| {name} | {before:.2f} | {after:.2f} | {after / before:.2f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000_000, help="finished jobs behind")
    parser.add_argument("--drain", type=int, default=20_000, help="jobs to drain in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", default="sqlite,postgresql")
    options = parser.parse_args(arguments)
    for kind in options.stores.split(","):
        empty, full = asyncio.run(measure(kind, options))
        tell("")
        print(f"{table(kind, options.jobs, empty, full)}\n", flush=True)


if __name__ == "__main__":
    main()
