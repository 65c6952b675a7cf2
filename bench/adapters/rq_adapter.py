"""RQ, on Redis."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker, Worker
from rq.registry import StartedJobRegistry

from bench.adapters.contract import Adapter, Sent, handled, main

# By name: it refuses a function of the module that was started.
NOOP = "bench.adapters.rq_adapter.noop"


class Rq(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        self._redis = Redis.from_url(self.around.redis_url)
        self._queue = Queue("bench", connection=self._redis)
        self._kept: dict[str, Any] = {"result_ttl": 0} if self.best else {}

    def settings(self) -> dict[str, str]:
        return {
            "settings": "SimpleWorker (a process forked for every job), results not kept (500 s);"
            " bulk: enqueue_many of 1,000"
            if self.best
            else "Worker: a process forked for every job, results kept for 500 s;"
            " bulk: enqueue_many of 1,000",
            "documented": "Docs, Workers: Performance Notes; SimpleWorker"
            " (no heartbeat while a job runs: not recommended for production); Results",
            "versions": f"rq {version('rq')}, redis-py {version('redis')}",
        }

    def prepare(self) -> None:
        self._redis.flushdb()

    def enqueue(self, jobs: Iterable[Sent]) -> None:
        self._redis.ping()
        for job in jobs:
            self._queue.enqueue(NOOP, job.sent_at, job.padding, **self._kept)

    def bulk(self, batches: Iterable[list[Sent]]) -> None:
        self._redis.ping()
        for batch in batches:
            self._queue.enqueue_many(
                [
                    Queue.prepare_data(NOOP, (job.sent_at, job.padding), **self._kept)
                    for job in batch
                ]
            )

    def work(self) -> None:
        kind = SimpleWorker if self.best else Worker
        kind([self._queue], connection=self._redis).work(logging_level="ERROR")

    def unfinished(self) -> int:
        started = StartedJobRegistry(queue=self._queue)
        return len(self._queue) + len(started.get_job_ids(cleanup=False))


def noop(sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(Rq())
