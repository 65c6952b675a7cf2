"""Dramatiq, on RabbitMQ."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from bench.adapters import rabbitmq
from bench.adapters.contract import Adapter, Sent, Surroundings, handled, main

PREFETCH = 100
if Surroundings.read().variant == "best":
    # Read when the library is imported.
    os.environ.update(dramatiq_queue_prefetch=str(PREFETCH))

from dramatiq import Actor, Worker, actor  # noqa: E402
from dramatiq.brokers.rabbitmq import RabbitmqBroker  # noqa: E402

QUEUE = "default"
THREADS = 8


class Dramatiq(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        self._broker = RabbitmqBroker(url=self.around.rabbitmq_url, confirm_delivery=self.best)
        self._noop: Actor[Any, Any] = actor(_noop, broker=self._broker, queue_name=QUEUE)

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"one process, {THREADS} threads, prefetch {PREFETCH} ({THREADS * 2}),"
            " publishing confirmed (not), default middleware; no bulk call: one after the other"
            if self.best
            else f"one process, {THREADS} threads, prefetch {THREADS * 2}, publishing not"
            " confirmed, default middleware; no bulk call: one after the other",
            "documented": "API Reference, Environment Variables: dramatiq_queue_prefetch;"
            " RabbitmqBroker: confirm_delivery",
            "versions": f"dramatiq {version('dramatiq')}, pika {version('pika')}",
        }

    def prepare(self) -> None:
        self._broker.declare_queue(QUEUE, ensure=True)
        self._broker.flush(QUEUE)

    def enqueue(self, jobs: Iterable[Sent]) -> None:
        self._broker.declare_queue(QUEUE, ensure=True)
        for job in jobs:
            self._noop.send(job.sent_at, job.padding)

    def bulk(self, batches: Iterable[list[Sent]]) -> None:
        self.enqueue(job for batch in batches for job in batch)

    def work(self) -> None:
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        worker = Worker(self._broker, worker_threads=THREADS)
        worker.start()
        stopped.wait()
        worker.stop()

    def unfinished(self) -> int:
        return rabbitmq.unfinished(self.around.rabbitmq_url, QUEUE)


def _noop(sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(Dramatiq())
