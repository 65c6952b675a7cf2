"""Breakers: the failures that open them, and the jobs that they park and unpark."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain import limits
from holdfast.domain.breakers import Breaker, BreakerStatus, Parking, Strike
from holdfast.stores.sqlite.rows import after, fetch, text, to_json, to_time_or_none
from holdfast.stores.sqlite.threads import Transaction


class _Known(msgspec.Struct, array_like=True):
    """A breaker as a failure finds it."""

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
        factor = limits.BREAKER_DOUBT_FACTOR if in_a_row < len(failures) else 1
        if in_a_row >= strike.failures_max * factor:
            self.is_open = self.opens = True
        self.failures = failures[-strike.failures_max * limits.BREAKER_DOUBT_FACTOR :]
        return False

    def learn(self, strike: Strike, now: int) -> None:
        """Note the worker's last success, which may be newer than the failure."""
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
        limit=limits.BREAKERS_LISTED_MAX,
        parked_max=limits.PARKED_COUNTED_MAX,
    )
    return [_breaker(row) for row in rows]


def strike(transaction: Transaction, strikes: Sequence[Strike]) -> Sequence[bool]:
    keys = sorted({each.key for each in strikes})
    found = _KNOWN.decode(transaction.fetch_json("struck", keys=to_json(keys)))
    known = {each.key: each for each in found}
    for key in keys:
        known.setdefault(key, _Known(key, [], False))
    for each in strikes:
        known[each.key].learn(each, transaction.now)
    answers = [known[each.key].add(each, transaction.now) for each in strikes]
    rows = [
        each.row(each.last, transaction.now) for each in known.values() if each.last is not None
    ]
    transaction.execute("strike", struck=to_json(rows))
    return answers


def open_breaker(transaction: Transaction, key: str, by: str | None, because: str | None) -> None:
    usual = Breaker(key)
    transaction.execute(
        "open_breaker",
        key=text(key),
        by=text(by),
        because=text(because),
        window_seconds=usual.window_seconds,
        probe_seconds=usual.probe_seconds,
    )


def close_breaker(transaction: Transaction, key: str, forget: bool, by_hand: bool) -> bool:
    if not forget:
        return transaction.execute("close_breaker", key=key, by_hand=by_hand).rowcount == 1
    was_known = transaction.execute("forget_breaker", key=key).rowcount == 1
    transaction.execute("forget_unparked")
    return was_known


def park(transaction: Transaction, limit: int) -> Parking:
    parked = transaction.execute("park", limit=limit).rowcount
    unparked = _unpark(transaction, limit - parked)
    if parked + unparked < limit:
        transaction.execute("forget_unparked")
        transaction.execute("end_unparking")
    (next_probe_at,) = transaction.execute("next_probe").fetchone()
    if next_probe_at is None:
        return Parking(parked + unparked, None)
    wait_seconds = min((next_probe_at - transaction.now) / 1e6, limits.DELAY_SECONDS_MAX)
    return Parking(parked + unparked, wait_seconds)


def send_probes(transaction: Transaction, probes: Sequence[tuple[str | None, int]]) -> None:
    """Unpark these probes, given by key and number, and set when the next ones may follow."""
    transaction.execute("unpark_probes", numbers=to_json([number for _, number in probes]))
    transaction.execute("plan_probes", keys=to_json([key for key, _ in probes]))


def _unpark(transaction: Transaction, limit: int) -> int:
    jobs = _PARKED.decode(transaction.fetch_json("unparkable", limit=limit))
    if jobs:
        transaction.execute("unpark", numbers=to_json([number for number, _ in jobs]))
        transaction.wake_queues({queue for _, queue in jobs})
    return len(jobs)


def _breaker(row: dict[str, Any]) -> BreakerStatus:
    times = {name: to_time_or_none(row[name]) for name in ("opened_at", "next_probe_at")}
    return BreakerStatus(**row | times | {"unparking": bool(row["unparking"])})
