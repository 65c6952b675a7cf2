"""Breakers: failures that open them, and the jobs that they hold and let go."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.breakers import BreakerSeen, Holding, Strike
from holdfast.domain.limits import BREAKERS_LISTED_MAX, DELAY_SECONDS_MAX, HELD_COUNTED_MAX
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.values import after, text, to_json, to_time_or_none
from holdfast.stores.statements import load, read_sql

_SQL = load(read_sql("sqlite", "holds.sql"), numbered=False)
# Of a breaker that is opened by hand before it has ever failed.
_WINDOW_SECONDS = 30.0
_PROBE_SECONDS = 10.0


class _Known(msgspec.Struct, array_like=True):
    """A breaker as failures find it."""

    key: str
    failures: list[int]
    is_open: int
    last: Strike | None = None
    opens: bool = False

    def add(self, strike: Strike, now: int) -> bool:
        """Count a failure; True if the breaker was open already."""
        if self.is_open:
            return True
        self.last = strike
        self.failures = [*self.failures, now][-strike.failures_max :]
        since = after(now, -strike.window_seconds)
        if sum(failed_at > since for failed_at in self.failures) >= strike.failures_max:
            self.is_open = self.opens = True
        return False

    def row(self, strike: Strike, now: int) -> tuple[object, ...]:
        opened = (now, text(strike.because), after(now, strike.probe_seconds))
        return (
            text(self.key),
            self.failures,
            strike.window_seconds,
            strike.probe_seconds,
            *(opened if self.opens else (None, None, None)),
        )


_KNOWN = msgspec.json.Decoder(list[_Known])
_HELD = msgspec.json.Decoder(list[tuple[int, str]])


def breakers(
    connection: sqlite3.Connection, now: int, key: str | None = None
) -> Sequence[BreakerSeen]:
    bounds = {
        "now": now,
        "key": key,
        "limit": BREAKERS_LISTED_MAX,
        "held_max": HELD_COUNTED_MAX,
    }
    return [_breaker(row) for row in connection.execute(_SQL["breakers"].sql, bounds).fetchall()]


def strike(transaction: Transaction, strikes: Sequence[Strike]) -> Sequence[bool]:
    keys = sorted({each.key for each in strikes})
    found = transaction.connection.execute(_SQL["struck"].sql, {"keys": to_json(keys)}).fetchone()
    known = {each.key: each for each in _KNOWN.decode(found[0])}
    for key in keys:
        known.setdefault(key, _Known(key, [], False))
    answers = [known[each.key].add(each, transaction.now) for each in strikes]
    rows = [
        each.row(each.last, transaction.now) for each in known.values() if each.last is not None
    ]
    _write(transaction, "strike", struck=to_json(rows))
    return answers


def open_breaker(transaction: Transaction, key: str, by: str | None, because: str | None) -> None:
    _write(
        transaction,
        "open",
        key=text(key),
        by=text(by),
        because=text(because),
        window_seconds=_WINDOW_SECONDS,
        probe_seconds=_PROBE_SECONDS,
    )


def close_breaker(transaction: Transaction, key: str, forget: bool, by_hand: bool) -> bool:
    if not forget:
        return _write(transaction, "close", key=key, by_hand=by_hand) == 1
    was_known = _write(transaction, "forget", key=key) == 1
    _write(transaction, "forget_let_go")
    return was_known


def hold(transaction: Transaction, limit: int) -> Holding:
    held = _write(transaction, "hold", limit=limit)
    let_go = _let_go(transaction, limit - held)
    if held + let_go < limit:
        _write(transaction, "forget_let_go")
        _write(transaction, "all_let_go")
    (next_probe_at,) = transaction.connection.execute(_SQL["next_probe"].sql).fetchone()
    if next_probe_at is None:
        return Holding(held + let_go, None)
    wait_seconds = min((next_probe_at - transaction.now) / 1e6, DELAY_SECONDS_MAX)
    return Holding(held + let_go, wait_seconds)


def sent_ahead(transaction: Transaction, probes: Sequence[tuple[str | None, UUID, int]]) -> None:
    """Note which jobs, by key, id and number, are no longer held, and when the next may follow."""
    _write(transaction, "let_go", numbers=to_json([number for _, _, number in probes]))
    _write(transaction, "sent_ahead", sent=to_json([(key, job_id) for key, job_id, _ in probes]))


def _let_go(transaction: Transaction, limit: int) -> int:
    found = transaction.connection.execute(_SQL["to_let_go"].sql, {"limit": limit}).fetchone()
    jobs = _HELD.decode(found[0])
    if jobs:
        _write(transaction, "let_go", numbers=to_json([number for number, _ in jobs]))
        transaction.wake_queues({queue for _, queue in jobs})
    return len(jobs)


def _write(transaction: Transaction, statement: str, **values: object) -> int:
    """Run a statement; answer the number of rows that it changed."""
    bound = {"now": transaction.now, **values}
    return transaction.connection.execute(_SQL[statement].sql, bound).rowcount


def _breaker(row: Sequence[Any]) -> BreakerSeen:
    (
        key,
        failures,
        opened_at,
        opened_by,
        opened_because,
        next_probe_at,
        letting_go,
        times_opened,
        held,
    ) = row
    return BreakerSeen(
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
