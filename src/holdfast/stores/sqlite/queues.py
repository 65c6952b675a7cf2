"""Queues: what operators say of them, and how many more jobs may start in each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.domain.queues import QueueStatus
from holdfast.stores.sqlite.rows import SQL, fetch, text, to_time_or_none
from holdfast.stores.sqlite.threads import Transaction


@dataclass(frozen=True, slots=True)
class Caps:
    """How many more jobs may start in the queues that are paused or capped; others have no bound.

    Good for one transaction: nobody else starts a job meanwhile.
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
    said = transaction.connection.execute(SQL["caps"].sql).fetchall()
    most = {name: running_max for name, _, running_max in said if running_max is not None}
    running = dict(transaction.connection.execute(SQL["running"].sql).fetchall()) if most else {}
    left = {name: max(cap - running.get(name, 0), 0) for name, cap in most.items()}
    left |= {name: 0 for name, is_paused, _ in said if is_paused}
    return Caps(left, frozenset(most))


def queues(connection: sqlite3.Connection, now: int) -> Sequence[QueueStatus]:
    return [_queue(row) for row in fetch(connection, "queues", now=now)]


def queue(connection: sqlite3.Connection, name: str) -> QueueStatus | None:
    """What operators said of it, and what runs in it; what waits in it is not counted."""
    rows = fetch(connection, "queue", queue=name)
    return _queue(rows[0]) if rows else None


def pause(transaction: Transaction, queue: str, by: str | None, because: str | None) -> bool:
    said = {"queue": text(queue), "now": transaction.now, "by": text(by), "because": text(because)}
    return transaction.connection.execute(SQL["pause"].sql, said).rowcount == 1


def resume(transaction: Transaction, queue: str) -> bool:
    said = {"queue": queue}
    resumed = transaction.connection.execute(SQL["resume"].sql, said).rowcount == 1
    if resumed:
        transaction.connection.execute(SQL["forget_queue"].sql, said)
        transaction.wake_queues([queue])
    return resumed


def cap(transaction: Transaction, queue: str, running_max: int | None) -> None:
    """Set the cap; more may run now, so the workers are woken."""
    said = {"queue": text(queue), "running_max": running_max}
    transaction.connection.execute(SQL["cap"].sql, said)
    transaction.connection.execute(SQL["forget_queue"].sql, said)
    transaction.wake_queues([queue])


def _queue(row: dict[str, Any]) -> QueueStatus:
    return QueueStatus(**row | {"paused_at": to_time_or_none(row["paused_at"])})
