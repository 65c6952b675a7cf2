"""Holdfast itself, on PostgreSQL or on SQLite."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

import uvloop

from bench.adapters.contract import Adapter, Sent, main
from bench.adapters.holdfast_jobs import JOBS, hf


class HoldfastAdapter(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.loop_factory = uvloop.new_event_loop
        is_default = self.around.variant == "default"
        self._concurrency = hf.settings.concurrency if is_default else self.around.concurrency

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"concurrency={self._concurrency}, uvloop; leases, retries, results and"
            " history as they come; bulk: enqueue_many",
            "documented": "docs/guides/workers.md",
            "versions": f"holdfast {version('holdfast')}",
        }

    async def prepare(self) -> None:
        await hf.migrate()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        async with hf:
            for sent in jobs:
                await self._job(sent.queue, sent.delay_seconds).enqueue(sent.sent_at, sent.padding)

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        async with hf:
            for batch in batches:
                await hf.enqueue_many(
                    [
                        self._job(sent.queue, sent.delay_seconds).call(sent.sent_at, sent.padding)
                        for sent in batch
                    ]
                )

    async def work(self) -> None:
        async with hf:
            await hf.run_worker(concurrency=self._concurrency)

    async def unfinished(self) -> int:
        return sum(count.jobs for count in await hf.counts() if not count.state.ended)

    @cache  # noqa: B019 - one adapter lives as long as its process
    def _job(self, queue: int, delay_seconds: float) -> Any:
        job = JOBS[self.around.handler]
        if not queue and not delay_seconds:
            return job
        return job.options(queue=f"queue-{queue}", delay_seconds=delay_seconds)


if __name__ == "__main__":
    main(HoldfastAdapter())
