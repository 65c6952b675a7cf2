"""Chancy, on psycopg."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import version

import uvloop
from chancy import Chancy, Job, Queue, Worker

from bench.adapters.contract import Adapter, Sent, handled, main
from bench.adapters.psycopg_count import count

CONCURRENCY = 1000
POLL_SECONDS = 1
UNFINISHED = "SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"


class ChancyAdapter(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        if self.best:
            self.loop_factory = uvloop.new_event_loop
        # Without one it writes two lines for every job to the standard error.
        log = logging.getLogger("chancy")
        log.setLevel(logging.ERROR)
        self._log = log

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"AsyncExecutor (processes), concurrency {CONCURRENCY} (one per"
            f" core), eager_polling (no), polling_interval {POLL_SECONDS} s (5), default plugins,"
            " uvloop; bulk: push_many of 1,000"
            if self.best
            else "ProcessExecutor, one job per core, polling_interval 5 s, default plugins;"
            " bulk: push_many of 1,000",
            "documented": "Reference, chancy.queue.Queue; Guide, Executors;"
            " uvloop: as Holdfast has it",
            "versions": f"chancy {version('chancy')}, psycopg {version('psycopg')}",
        }

    async def prepare(self) -> None:
        async with self._opened() as chancy:
            await chancy.migrate()
            await chancy.declare(self._queue(), upsert=True)

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        async with self._opened() as chancy:
            for job in jobs:
                await chancy.push(self._job(job))

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        async with self._opened() as chancy:
            for batch in batches:
                async for _ in chancy.push_many([self._job(job) for job in batch]):
                    pass

    async def work(self) -> None:
        async with self._opened() as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()

    async def unfinished(self) -> int:
        return await count(self.around.database_url, UNFINISHED)

    def _opened(self) -> Chancy:
        return Chancy(self.around.database_url, log=self._log)

    def _queue(self) -> Queue:
        if not self.best:
            return Queue("default")
        return Queue(
            "default",
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            polling_interval=POLL_SECONDS,
            eager_polling=True,
        )

    def _job(self, job: Sent) -> Job:
        name = "noop" if self.best else "noop_in_process"
        return Job(
            func=f"bench.adapters.chancy_adapter.{name}",
            kwargs={"sent_at": job.sent_at, "padding": job.padding},
        )


async def noop(*, sent_at: float, padding: str) -> None:
    handled(sent_at)


def noop_in_process(*, sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(ChancyAdapter())
