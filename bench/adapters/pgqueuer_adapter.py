"""PgQueuer, on asyncpg."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.adapters.contract import Adapter, Sent, handled, main

BATCH_JOBS = 500
UNFINISHED = "SELECT count(*) FROM pgqueuer"


class PgQueuer(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        if self.best:
            self.loop_factory = uvloop.new_event_loop

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"one connection, batch_size {BATCH_JOBS} (10), its autovacuum settings,"
            " uvloop, durable tables; bulk: lists of 1,000"
            if self.best
            else "one connection, batch_size 10, durable tables; bulk: lists of 1,000",
            "documented": "Guides, Performance Tuning: Batch Size, Autovacuum Tuning;"
            " uvloop: as Holdfast has it",
            "versions": f"pgqueuer {version('pgqueuer')}, asyncpg {version('asyncpg')}",
        }

    async def prepare(self) -> None:
        queries = await self._queries()
        await queries.install()
        if self.best:
            await queries.optimize_autovacuum()

    async def enqueue(self, jobs: Iterable[Sent]) -> None:
        queries = await self._queries()
        for job in jobs:
            await queries.enqueue("noop", _payload(job))

    async def bulk(self, batches: Iterable[list[Sent]]) -> None:
        queries = await self._queries()
        for batch in batches:
            size = len(batch)
            await queries.enqueue(["noop"] * size, [_payload(job) for job in batch], [0] * size)

    async def work(self) -> None:
        manager = QueueManager(await self._queries())
        manager.entrypoint("noop")(_noop)
        await (manager.run(batch_size=BATCH_JOBS) if self.best else manager.run())

    async def unfinished(self) -> int:
        connection = await asyncpg.connect(self.around.database_url)
        try:
            return int(await connection.fetchval(UNFINISHED))
        finally:
            await connection.close()

    async def _queries(self) -> Queries:
        return Queries(AsyncpgDriver(await asyncpg.connect(self.around.database_url)))


def _payload(job: Sent) -> bytes:
    return f"{job.sent_at} {job.padding}".encode()


async def _noop(job: object) -> None:
    payload: bytes = job.payload  # type: ignore[attr-defined]
    handled(float(payload.split(b" ", 1)[0]))


if __name__ == "__main__":
    main(PgQueuer())
