"""arq, on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import uvloop
from arq import Worker, create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.constants import default_queue_name

from bench.adapters.contract import Adapter, Sent, handled, main

CONCURRENCY = 1000
POLL_SECONDS = 0.01
BULK_CONNECTIONS = 50


class Arq(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        if self.best:
            self.loop_factory = uvloop.new_event_loop

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"max_jobs {CONCURRENCY} (10), poll_delay {POLL_SECONDS} s"
            " (0.5), results not kept (1 hour), uvloop; no bulk call:"
            f" {BULK_CONNECTIONS} calls at a time"
            if self.best
            else "max_jobs 10, poll_delay 0.5 s, results kept for an hour; no bulk call:"
            f" {BULK_CONNECTIONS} calls at a time",
            "documented": "API Reference, arq.worker.Worker; uvloop: as Holdfast has it",
            "versions": f"arq {version('arq')}, redis-py {version('redis')}",
        }

    async def prepare(self) -> None:
        pool = await self._pool()
        await pool.flushdb()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        pool = await self._pool()
        for job in jobs:
            await pool.enqueue_job("noop", job.sent_at, job.padding)

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        pool = await self._pool()

        async def send(jobs: list[Sent]) -> None:
            for job in jobs:
                await pool.enqueue_job("noop", job.sent_at, job.padding)

        for batch in batches:
            await asyncio.gather(
                *[send(batch[start::BULK_CONNECTIONS]) for start in range(BULK_CONNECTIONS)]
            )

    async def work(self) -> None:
        chosen: dict[str, Any] = {}
        if self.best:
            chosen = {
                "max_jobs": CONCURRENCY,
                "poll_delay": POLL_SECONDS,
                "keep_result": 0,
            }
        worker = Worker(functions=[noop], redis_settings=self._address(), **chosen)
        with suppress(asyncio.CancelledError):  # its way to end at SIGTERM
            await worker.async_run()

    async def unfinished(self) -> int:
        # A job leaves the queue only when it has ended.
        pool = await self._pool()
        try:
            return int(await pool.zcard(default_queue_name))
        finally:
            await pool.aclose()

    async def _pool(self) -> ArqRedis:
        return await create_pool(self._address())

    def _address(self) -> RedisSettings:
        return RedisSettings.from_dsn(self.around.redis_url)


async def noop(context: dict[str, Any], sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(Arq())
