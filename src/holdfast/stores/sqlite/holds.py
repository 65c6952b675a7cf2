"""Queues and breakers: what operators and failures hold, and how it goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.limits import BREAKERS_LISTED_MAX, HELD_COUNTED_MAX
from holdfast.domain.queues import QueueSeen
from holdfast.stores.sqlite.values import to_time_or_none
from holdfast.stores.statements import load, read_sql

_SQL = load(read_sql("sqlite", "holds.sql"), numbered=False)


def queues(connection: sqlite3.Connection, now: int) -> Sequence[QueueSeen]:
    rows = connection.execute(_SQL["queues"].sql, {"now": now}).fetchall()
    return [
        QueueSeen(
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
        for (
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
        ) in rows
    ]


def breakers(connection: sqlite3.Connection, now: int) -> Sequence[BreakerSeen]:
    bounds = {"now": now, "limit": BREAKERS_LISTED_MAX, "held_max": HELD_COUNTED_MAX}
    rows = connection.execute(_SQL["breakers"].sql, bounds).fetchall()
    return [
        BreakerSeen(
            key=key,
            failures=failures,
            opened_at=to_time_or_none(opened_at),
            opened_by=opened_by,
            opened_because=opened_because,
            next_probe_at=to_time_or_none(next_probe_at),
            letting_go=bool(letting_go),
            times_opened=times_opened,
            held=held,
        )
        for (
            key,
            failures,
            opened_at,
            opened_by,
            opened_because,
            next_probe_at,
            letting_go,
            times_opened,
            held,
        ) in rows
    ]
