"""QueueChoice that a worker is told to serve but that nobody else uses."""

from __future__ import annotations

import difflib
from collections.abc import Sequence, Set
from logging import WARNING
from typing import Protocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.queues import QueueStatus
from holdfast.observability import logs


class QueuesStore(Protocol):
    async def queues(self) -> Sequence[QueueStatus]: ...


async def tell_unknown_queues(
    store: QueuesStore, served: Sequence[str] | None, declared: Set[str]
) -> None:
    """Warn of a queue that no job names and that is not in the database, if another is close."""
    undeclared = [queue for queue in served or () if queue not in declared]
    if not undeclared:
        return  # without a question that reads every job there is
    try:
        known = {*declared, *(each.name for each in await store.queues())}
    except HoldfastError:
        return  # the worker tells by itself that it can't reach its database
    for queue in undeclared:
        close = [] if queue in known else difflib.get_close_matches(queue, sorted(known))
        if close:
            text = f"no job uses the queue {queue!r} yet; did you mean {close[0]!r}?"
            logs.event(WARNING, "unknown_queue", text, queue=queue)
