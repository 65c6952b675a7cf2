"""Celery, on RabbitMQ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import version

from celery import Celery

from bench.adapters import rabbitmq
from bench.adapters.contract import Adapter, Sent, handled, main

QUEUE = "celery"
PREFETCH = 128
BEST = {
    "worker_prefetch_multiplier": PREFETCH,
    "task_ignore_result": True,
    "task_acks_late": True,
    "broker_transport_options": {"confirm_publish": True},
}
LEAN = ("--without-gossip", "--without-mingle", "--without-heartbeat")


class CeleryAdapter(Adapter):
    def __init__(self) -> None:
        super().__init__()
        self.best = self.around.variant == "best"
        self._app = Celery("bench", broker=self.around.rabbitmq_url)
        if self.best:
            self._app.conf.update(BEST)
        self._noop = self._app.task(name="noop")(_noop)

    def settings(self) -> dict[str, str]:
        return {
            "settings": f"prefork, a process per core, prefetch {PREFETCH} per process (4),"
            " acknowledged after the job (before), publishing confirmed (not), no gossip, mingle"
            " or heartbeat; no bulk call: one after the other"
            if self.best
            else "prefork, a process per core, prefetch 4 per process, acknowledged before the job"
            " runs, publishing not confirmed; no bulk call: one after the other",
            "documented": "User Guide, Optimizing: Prefetch Limits (64 or 128 for short tasks);"
            " Configuration: task_acks_late, broker_transport_options",
            "versions": f"celery {version('celery')}, amqp {version('amqp')}",
        }

    def prepare(self) -> None:
        with self._app.connection_for_write() as connection:
            queue = self._app.amqp.queues[QUEUE](connection.default_channel)
            queue.declare()
            queue.purge()

    def enqueue(self, jobs: Iterable[Sent]) -> None:
        with (
            self._app.connection_for_write() as connection,
            self._app.amqp.Producer(connection) as producer,
        ):
            for job in jobs:
                self._noop.apply_async((job.sent_at, job.padding), producer=producer)

    def bulk(self, batches: Iterable[list[Sent]]) -> None:
        self.enqueue(job for batch in batches for job in batch)

    def work(self) -> None:
        name = f"bench-{os.getpid()}@localhost"
        lean = LEAN if self.best else ()
        self._app.worker_main(["worker", "--loglevel=ERROR", f"--hostname={name}", *lean])

    def unfinished(self) -> int:
        return rabbitmq.unfinished(self.around.rabbitmq_url, QUEUE)


def _noop(sent_at: float, padding: str) -> None:
    handled(sent_at)


if __name__ == "__main__":
    main(CeleryAdapter())
