"""Queues that a worker serves although no job uses them: probably misspelled."""

from __future__ import annotations

from collections.abc import Sequence, Set
from logging import WARNING

from holdfast.domain.errors import HoldfastError
from holdfast.domain.spelling import did_you_mean
from holdfast.observability import logs
from holdfast.stores.protocol import Store


async def warn_of_unknown_queues(
    store: Store, served: Sequence[str] | None, declared: Set[str]
) -> None:
    """Warn of a queue that neither jobs nor the database know, if a similar one exists."""
    undeclared = [queue for queue in served or () if queue not in declared]
    if not undeclared:
        return  # without a query that reads every job
    try:
        known = {*declared, *(each.name for each in await store.queues())}
    except HoldfastError:
        return  # the worker itself reports that it can't reach its database
    for queue in undeclared:
        if queue not in known and (hint := did_you_mean(queue, known)):
            text = f"no job uses the queue {queue!r} yet{hint}"
            logs.event(WARNING, "unknown_queue", text, queue=queue)
