"""Queues: paused and capped by operators, and how many more jobs may start in each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.domain.queues import QueueStatus
from holdfast.stores.sqlite.rows import fetch, text, to_time_or_none
from holdfast.stores.sqlite.threads import Transaction


@dataclass(frozen=True, slots=True)
class Caps:
    """How many more jobs may start in each paused or capped queue; other queues have no bound.

    Valid for one transaction, in which nobody else can start a job.
    """

    _left: dict[str, int]
    capped: frozenset[str]

    @property
    def paused_or_full(self) -> list[str]:
        """The queues in which no job may start."""
        return [queue for queue, left in self._left.items() if left <= 0]

    def bound(self, queue: str, wanted: int) -> int:
        return min(wanted, self._left.get(queue, wanted))

    def take(self, queue: str, jobs: int) -> None:
        if queue in self._left:
            self._left[queue] -= jobs


def caps(transaction: Transaction) -> Caps:
    settings = transaction.execute("caps").fetchall()
    most = {name: running_max for name, _, running_max in settings if running_max is not None}
    running = dict(transaction.execute("running").fetchall()) if most else {}
    left = {name: max(cap - running.get(name, 0), 0) for name, cap in most.items()}
    left |= {name: 0 for name, is_paused, _ in settings if is_paused}
    return Caps(left, frozenset(most))


def queues(connection: sqlite3.Connection, now: int) -> Sequence[QueueStatus]:
    return [_queue(row) for row in fetch(connection, "queues", now=now)]


def queue(connection: sqlite3.Connection, name: str) -> QueueStatus | None:
    """The queue's pause, cap and running jobs; its waiting jobs are not counted."""
    rows = fetch(connection, "queue", queue=name)
    return _queue(rows[0]) if rows else None


def pause(transaction: Transaction, queue: str, by: str | None, because: str | None) -> bool:
    paused = transaction.execute("pause", queue=text(queue), by=text(by), because=text(because))
    return paused.rowcount == 1


def is_paused(connection: sqlite3.Connection, queue: str) -> bool:
    return bool(fetch(connection, "is_paused", queue=queue))


def resume(transaction: Transaction, queue: str) -> bool:
    resumed = transaction.execute("resume", queue=queue).rowcount == 1
    if resumed:
        transaction.execute("forget_queue", queue=queue)
        transaction.wake_queues([queue])
    return resumed


def cap(transaction: Transaction, queue: str, running_max: int | None) -> None:
    """Set the cap, and wake the workers: more jobs may run now."""
    transaction.execute("cap", queue=text(queue), running_max=running_max)
    transaction.execute("forget_queue", queue=queue)
    transaction.wake_queues([queue])


def _queue(row: dict[str, Any]) -> QueueStatus:
    return QueueStatus(**row | {"paused_at": to_time_or_none(row["paused_at"])})
