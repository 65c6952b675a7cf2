"""Holdfast itself, on PostgreSQL or on SQLite."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import uvloop

from bench.adapters.contract import Adapter, Sent, main
from bench.adapters.holdfast_jobs import JOBS, connected, hf
from holdfast.cli.main import run

CONCURRENCY = 1000


class HoldfastAdapter(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.loop_factory = uvloop.new_event_loop
        best = hf.settings.concurrency if self.around.variant == "default" else CONCURRENCY
        self._concurrency = self.around.concurrency or best

    def settings(self) -> dict[str, str]:
        # Imported here: it takes 2 MB, which would count as the worker's.
        from importlib.metadata import version

        return {
            "settings": f"holdfast worker {' '.join(self._options)}, uvloop; leases, retries,"
            " results and history as they come; bulk: enqueue_many",
            "documented": "docs/guides/workers.md, How much at a time",
            "versions": f"holdfast {version('holdfast')}",
        }

    async def prepare(self) -> None:
        await hf.migrate()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        async with hf:
            await connected()
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

    def work(self) -> None:
        run(["worker", "bench.adapters.holdfast_jobs:hf", *self._options])

    @property
    def _options(self) -> list[str]:
        queues = ["--queues", self.around.queues] if self.around.queues else []
        return [*queues, "--concurrency", str(self._concurrency), "--log-level", "warning"]

    async def unfinished(self) -> int:
        return sum(count.jobs for count in await hf.jobs.counts() if not count.state.ended)

    @cache  # noqa: B019 - one adapter lives as long as its process
    def _job(self, queue: int, delay_seconds: float) -> Any:
        job = JOBS[self.around.handler]
        if not queue and not delay_seconds:
            return job
        return job.options(queue=f"queue-{queue}", delay_seconds=delay_seconds)


if __name__ == "__main__":
    main(HoldfastAdapter())
