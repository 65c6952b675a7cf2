"""Procrastinate, on psycopg."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector

from bench.adapters.contract import Adapter, Sent, handled, main
from bench.adapters.psycopg_count import count

CONCURRENCY = 100
POOL_CONNECTIONS = 10
UNFINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


class Procrastinate(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        pool: dict[str, int] = {}
        if self.best:
            self.loop_factory = uvloop.new_event_loop
            pool = {"min_size": POOL_CONNECTIONS, "max_size": POOL_CONNECTIONS}
        self._app = App(connector=PsycopgConnector(conninfo=self.around.database_url, **pool))
        self._noop = self._app.task(name="noop")(_noop)

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"concurrency {CONCURRENCY} (1), pool of {POOL_CONNECTIONS}"
            " (4), LISTEN, delete_jobs always (never), uvloop; bulk: batch_defer of 1,000"
            if self.best
            else "concurrency 1, pool of 4, LISTEN, jobs are kept; bulk: batch_defer of 1,000",
            "documented": "API Reference, App.run_worker_async: concurrency, delete_jobs;"
            " How-to, Delete finished jobs; uvloop: as Holdfast has it",
            "versions": f"procrastinate {version('procrastinate')}, psycopg {version('psycopg')}",
        }

    async def prepare(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        async with self._app.open_async():
            for job in jobs:
                await self._noop.defer_async(**_arguments(job))

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        async with self._app.open_async():
            for batch in batches:
                await self._noop.batch_defer_async(*[_arguments(job) for job in batch])

    async def work(self) -> None:
        chosen: dict[str, Any] = {}
        if self.best:
            chosen = {"concurrency": CONCURRENCY, "delete_jobs": "always"}
        async with self._app.open_async():
            await self._app.run_worker_async(**chosen)

    async def unfinished(self) -> int:
        return await count(self.around.database_url, UNFINISHED)


def _arguments(job: Sent) -> dict[str, Any]:
    return {"sent_at": job.sent_at, "padding": job.padding}


async def _noop(sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(Procrastinate())
