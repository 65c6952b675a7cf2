"""The declared queues, found by the addresses that clients use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.queue import Queue
from holdfast.servicebus_local.refusals import EntityNotFound

DEAD_LETTERS = "/$deadletterqueue"
MANAGEMENT = "/$management"
CBS = "$cbs"


def path_of(address: str | None) -> str:
    """`jobs` of `amqps://127.0.0.1:5672/Jobs`. Names of queues ignore case."""
    address = address or ""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/").lower()


class Namespace:
    def __init__(self, queues: Mapping[str, QueueOptions]) -> None:
        self._queues = {path_of(name): _declared(options) for name, options in queues.items()}

    def find(self, address: str) -> Queue:
        path = path_of(address)
        name = path.removesuffix(DEAD_LETTERS)
        queue = self._queues.get(name)
        found = queue if name == path or queue is None else queue.dead_letters
        if found is None:
            raise EntityNotFound(address)
        return found

    def __iter__(self) -> Iterator[Queue]:
        """All queues, and all dead letters."""
        for queue in self._queues.values():
            yield queue
            if queue.dead_letters is not None:
                yield queue.dead_letters

    def next_ms(self) -> int | None:
        times = (queue.next_ms() for queue in self)
        return min((time for time in times if time is not None), default=None)


def _declared(options: QueueOptions) -> Queue:
    """Dead letters have no sessions, and count towards the size of their queue."""
    dead_letters = Queue(replace(options, requires_session=False))
    return Queue(options, dead_letters, dead_letters.quota)
