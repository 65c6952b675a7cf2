"""Huey, on Redis."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from huey import RedisHuey

from bench.adapters.contract import Adapter, Sent, handled, main

THREADS = 8


class Huey(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        self._huey = RedisHuey("bench", url=self.around.redis_url, results=not self.best)
        self._noop = self._huey.task(name="noop")(_noop)

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"{THREADS} threads (1), results not kept, no periodic tasks; at most once:"
            " a job leaves the queue before it runs; no bulk call: one after the other"
            if self.best
            else "one thread; at most once: a job leaves the queue before it runs;"
            " no bulk call: one after the other",
            "documented": "Consuming Tasks: Options for the consumer, and its example of 8 threads",
            "versions": f"huey {version('huey')}, redis-py {version('redis')}",
        }

    def prepare(self) -> None:
        self._huey.flush()

    def enqueue(self, jobs: Iterable[Sent]) -> None:
        self._huey.pending_count()
        for job in jobs:
            self._noop(job.sent_at, job.padding)

    def bulk(self, batches: Iterable[list[Sent]]) -> None:
        self.enqueue(job for batch in batches for job in batch)

    def work(self) -> None:
        logging.getLogger("huey").setLevel(logging.ERROR)
        chosen: dict[str, Any] = {"workers": THREADS, "periodic": False} if self.best else {}
        self._huey.create_consumer(**chosen).run()

    def unfinished(self) -> int:
        return int(self._huey.pending_count())


def _noop(sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(Huey())
