"""Queues: what operators say of them, and how many more jobs may start in each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.domain.queues import QueueSeen
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.values import text, to_time_or_none
from holdfast.stores.statements import load, read_sql

_SQL = load(read_sql("sqlite", "holds.sql"), numbered=False)


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many more jobs may start in the queues that are paused or capped; others have no bound.

    Good for one transaction: nobody else starts a job meanwhile.
    """

    _left: dict[str, int]
    capped: frozenset[str]

    @property
    def shut(self) -> list[str]:
        """The queues in which no job may start."""
        return [queue for queue, left in self._left.items() if left <= 0]

    def bound(self, queue: str, wanted: int) -> int:
        return min(wanted, self._left.get(queue, wanted))

    def take(self, queue: str, jobs: int) -> None:
        if queue in self._left:
            self._left[queue] -= jobs


def rooms(transaction: Transaction) -> Rooms:
    said = transaction.connection.execute(_SQL["said"].sql).fetchall()
    caps = {name: running_max for name, _, running_max in said if running_max is not None}
    running = dict(transaction.connection.execute(_SQL["running"].sql).fetchall()) if caps else {}
    left = {name: max(most - running.get(name, 0), 0) for name, most in caps.items()}
    left |= {name: 0 for name, is_paused, _ in said if is_paused}
    return Rooms(left, frozenset(caps))


def queues(connection: sqlite3.Connection, now: int) -> Sequence[QueueSeen]:
    return [_queue(row) for row in connection.execute(_SQL["queues"].sql, {"now": now}).fetchall()]


def said_of(connection: sqlite3.Connection, queue: str) -> QueueSeen | None:
    """What operators said of it, and what runs in it; what waits in it is not counted."""
    row = connection.execute(_SQL["queue_said"].sql, {"queue": queue}).fetchone()
    return None if row is None else _queue(row)


def pause(transaction: Transaction, queue: str, by: str | None, because: str | None) -> bool:
    said = {"queue": text(queue), "now": transaction.now, "by": text(by), "because": text(because)}
    return transaction.connection.execute(_SQL["pause"].sql, said).rowcount == 1


def resume(transaction: Transaction, queue: str) -> bool:
    said = {"queue": queue}
    resumed = transaction.connection.execute(_SQL["resume"].sql, said).rowcount == 1
    if resumed:
        transaction.connection.execute(_SQL["forget_unsaid"].sql, said)
        transaction.wake_queues([queue])
    return resumed


def cap(transaction: Transaction, queue: str, running_max: int | None) -> None:
    """Set the cap; there may be room now, so the workers are woken."""
    said = {"queue": text(queue), "running_max": running_max}
    transaction.connection.execute(_SQL["cap"].sql, said)
    transaction.connection.execute(_SQL["forget_unsaid"].sql, said)
    transaction.wake_queues([queue])


def _queue(row: Sequence[Any]) -> QueueSeen:
    (
        name,
        ready,
        scheduled,
        held,
        running,
        oldest_ready_seconds,
        paused_at,
        paused_by,
        paused_because,
        running_max,
    ) = row
    return QueueSeen(
        name=name,
        ready=ready,
        scheduled=scheduled,
        held=held,
        running=running,
        oldest_ready_seconds=oldest_ready_seconds,
        paused_at=to_time_or_none(paused_at),
        paused_by=paused_by,
        paused_because=paused_because,
        running_max=running_max,
    )
