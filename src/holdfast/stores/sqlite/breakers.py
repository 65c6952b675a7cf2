"""Breakers: failures that open them, and the jobs that they park and unpark."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.limits import (
    BREAKER_DOUBT_FACTOR,
    BREAKERS_LISTED_MAX,
    DELAY_SECONDS_MAX,
    PARKED_COUNTED_MAX,
)
from holdfast.stores.sqlite.rows import SQL, after, fetch, text, to_json, to_time_or_none
from holdfast.stores.sqlite.threads import Transaction

# Of a breaker that is opened by hand before it has ever failed.
_WINDOW_SECONDS = 30.0
_PROBE_SECONDS = 10.0


class _Known(msgspec.Struct, array_like=True):
    """A breaker as failures find it."""

    key: str
    failures: list[int]
    is_open: int
    worked_at: int | None = None
    last: Strike | None = None
    opens: bool = False

    def add(self, strike: Strike, now: int) -> bool:
        """Count a failure; True if the breaker was open already."""
        if self.is_open:
            return True
        self.last = strike
        since = after(now, -strike.window_seconds)
        failures = sorted([*self.failures, after(now, -strike.failed_seconds_ago)])
        failures = [failed_at for failed_at in failures if failed_at > since]
        in_a_row = sum(self.worked_at is None or each > self.worked_at for each in failures)
        factor = BREAKER_DOUBT_FACTOR if in_a_row < len(failures) else 1
        if in_a_row >= strike.failures_max * factor:
            self.is_open = self.opens = True
        self.failures = failures[-strike.failures_max * BREAKER_DOUBT_FACTOR :]
        return False

    def learn(self, strike: Strike, now: int) -> None:
        """Take in what the worker knows of its successes, which may be newer than the failure."""
        if strike.worked_seconds_ago is not None and not self.is_open:
            worked_at = after(now, -strike.worked_seconds_ago)
            self.worked_at = max(worked_at, self.worked_at or worked_at)

    def row(self, strike: Strike, now: int) -> tuple[object, ...]:
        opened = (now, text(strike.because), after(now, strike.probe_seconds))
        return (
            text(self.key),
            self.failures,
            strike.window_seconds,
            strike.probe_seconds,
            *(opened if self.opens else (None, None, None)),
            self.worked_at,
        )


_KNOWN = msgspec.json.Decoder(list[_Known])
_PARKED = msgspec.json.Decoder(list[tuple[int, str]])


def breakers(
    connection: sqlite3.Connection, now: int, key: str | None = None
) -> Sequence[BreakerStatus]:
    rows = fetch(
        connection,
        "breakers",
        now=now,
        key=key,
        limit=BREAKERS_LISTED_MAX,
        parked_max=PARKED_COUNTED_MAX,
    )
    return [_breaker(row) for row in rows]


def strike(transaction: Transaction, strikes: Sequence[Strike]) -> Sequence[bool]:
    keys = sorted({each.key for each in strikes})
    found = transaction.connection.execute(SQL["struck"].sql, {"keys": to_json(keys)}).fetchone()
    known = {each.key: each for each in _KNOWN.decode(found[0])}
    for key in keys:
        known.setdefault(key, _Known(key, [], False))
    for each in strikes:
        known[each.key].learn(each, transaction.now)
    answers = [known[each.key].add(each, transaction.now) for each in strikes]
    rows = [
        each.row(each.last, transaction.now) for each in known.values() if each.last is not None
    ]
    _write(transaction, "strike", struck=to_json(rows))
    return answers


def open_breaker(transaction: Transaction, key: str, by: str | None, because: str | None) -> None:
    _write(
        transaction,
        "open_breaker",
        key=text(key),
        by=text(by),
        because=text(because),
        window_seconds=_WINDOW_SECONDS,
        probe_seconds=_PROBE_SECONDS,
    )


def close_breaker(transaction: Transaction, key: str, forget: bool, by_hand: bool) -> bool:
    if not forget:
        return _write(transaction, "close_breaker", key=key, by_hand=by_hand) == 1
    was_known = _write(transaction, "forget_breaker", key=key) == 1
    _write(transaction, "forget_unparked")
    return was_known


def park(transaction: Transaction, limit: int) -> Parking:
    parked = _write(transaction, "park", limit=limit)
    unparked = _unpark(transaction, limit - parked)
    if parked + unparked < limit:
        _write(transaction, "forget_unparked")
        _write(transaction, "end_unparking")
    (next_probe_at,) = transaction.connection.execute(SQL["next_probe"].sql).fetchone()
    if next_probe_at is None:
        return Parking(parked + unparked, None)
    wait_seconds = min((next_probe_at - transaction.now) / 1e6, DELAY_SECONDS_MAX)
    return Parking(parked + unparked, wait_seconds)


def send_probes(transaction: Transaction, probes: Sequence[tuple[str | None, int]]) -> None:
    """Note which jobs, by key and number, are no longer parked, and when the next may follow."""
    _write(transaction, "unpark_probes", numbers=to_json([number for _, number in probes]))
    _write(transaction, "plan_probes", keys=to_json([key for key, _ in probes]))


def _unpark(transaction: Transaction, limit: int) -> int:
    found = transaction.connection.execute(SQL["unparkable"].sql, {"limit": limit}).fetchone()
    jobs = _PARKED.decode(found[0])
    if jobs:
        _write(transaction, "unpark", numbers=to_json([number for number, _ in jobs]))
        transaction.wake_queues({queue for _, queue in jobs})
    return len(jobs)


def _write(transaction: Transaction, statement: str, **values: object) -> int:
    """Run a statement; answer the number of rows that it changed."""
    bound = {"now": transaction.now, **values}
    return transaction.connection.execute(SQL[statement].sql, bound).rowcount


def _breaker(row: dict[str, Any]) -> BreakerStatus:
    times = {name: to_time_or_none(row[name]) for name in ("opened_at", "next_probe_at")}
    return BreakerStatus(**row | times | {"unparking": bool(row["unparking"])})
