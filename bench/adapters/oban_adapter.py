"""Oban for Python, on psycopg."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install

from bench.adapters.contract import Adapter, Sent, handled, main
from bench.adapters.psycopg_count import count

CONCURRENCY = 1000
DEFAULT_LIMIT = 10
UNFINISHED = (
    "SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'discarded', 'canceled')"
)


class _Noop:
    async def process(self, job: Any) -> None:
        handled(job.args["sent_at"])


Noop = worker(queue="default")(_Noop)


class ObanAdapter(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        if self.best:
            self.loop_factory = uvloop.new_event_loop

    def settings(self) -> dict[str, str]:
        limit = CONCURRENCY if self.best else DEFAULT_LIMIT
        return {
            "settings": f"Python 3.12, queue limit {limit}, pool of 10"
            f"{', uvloop' if self.best else ''}; bulk: enqueue_many of 1,000",
            "documented": "Guides, Defining Queues (a limit must be given: 10 in its examples);"
            " Ready for Production: Sizing the Connection Pool (10 fit most); uvloop: as"
            " Holdfast has it",
            "versions": f"oban {version('oban')}, psycopg {version('psycopg')}",
        }

    async def prepare(self) -> None:
        pool = await Oban.create_pool(self.around.database_url)
        await install(pool)
        await pool.close()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        async with self._opened() as oban:
            for job in jobs:
                await oban.enqueue(_made(job))

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        async with self._opened() as oban:
            for batch in batches:
                await oban.enqueue_many(_made(job) for job in batch)

    async def work(self) -> None:
        limit = CONCURRENCY if self.best else DEFAULT_LIMIT
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        async with self._opened(queues={"default": limit}):
            await stopped.wait()

    async def unfinished(self) -> int:
        return await count(self.around.database_url, UNFINISHED)

    @asynccontextmanager
    async def _opened(self, **chosen: Any) -> AsyncIterator[Oban]:
        pool = await Oban.create_pool(self.around.database_url)
        try:
            async with Oban(pool=pool, **chosen) as oban:
                yield oban
        finally:
            await pool.close()


def _made(job: Sent) -> Any:
    return Noop.new({"sent_at": job.sent_at, "padding": job.padding})


if __name__ == "__main__":
    main(ObanAdapter())
