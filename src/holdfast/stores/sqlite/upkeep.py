"""Upkeep in bounded steps: forget what was kept long enough, move what ended in place."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.domain.limits import BREAKER_KEPT_SECONDS, WORKER_KEPT_LEASES
from holdfast.domain.states import State
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.rows import SQL, after, to_json
from holdfast.stores.sqlite.threads import Transaction


class _Leftover(move.Place, frozen=True):
    """A job that a worker of an older version ended in place."""

    state: State
    finished_at: int


class _Outlived(msgspec.Struct, array_like=True, frozen=True, gc=False):
    id: str
    queue: str
    tenant: str | None
    state: State


_LEFTOVERS = msgspec.json.Decoder(list[_Leftover])
_OUTLIVED = msgspec.json.Decoder(list[_Outlived])


def tidy(transaction: Transaction, limit: int) -> tuple[int, sqlite3.IntegrityError | None]:
    """Answer how many rows there were to do, or why those that are left can't be done."""
    moved, refused = _move_leftovers(transaction, limit)
    done = moved
    for step in (
        _forget_history,
        _forget_attempts,
        _forget_keys,
        _forget_requeues,
        _forget_workers,
        _forget_breakers,
    ):
        if done < limit:
            done += step(transaction, limit - done)
    if refused is None or done == limit:
        return done, None
    return (limit, None) if moved else (done, refused)


def _move_leftovers(
    transaction: Transaction, limit: int
) -> tuple[int, sqlite3.IntegrityError | None]:
    leftovers = _LEFTOVERS.decode(_fetch(transaction, "leftovers", limit))
    if not leftovers:
        return 0, None
    try:
        _move(transaction, leftovers)
        return len(leftovers), None
    except sqlite3.IntegrityError:
        moved, refused = 0, None
    # One by one, to pass over those that the database does not let go.
    for leftover in leftovers:
        try:
            _move(transaction, [leftover])
            moved += 1
        except sqlite3.IntegrityError as error:
            refused = error
    return moved, refused


def _move(transaction: Transaction, leftovers: Sequence[_Leftover]) -> None:
    rows = [
        (one.number, move.kept_until(transaction, one.queue, one.state, one.finished_at))
        for one in leftovers
    ]
    with move.savepoint(transaction):
        transaction.connection.execute(SQL["move_leftovers"].sql, {"leftovers": to_json(rows)})
        move.remove(transaction, [one.number for one in leftovers])
        move.count(transaction, ((one.tenant, one.queue, one.state) for one in leftovers))


def _forget_history(transaction: Transaction, limit: int) -> int:
    outlived = _OUTLIVED.decode(_fetch(transaction, "outlived", limit))
    if outlived:
        ids = {"ids": to_json([one.id for one in outlived]), "now": transaction.now}
        transaction.connection.execute(SQL["forget_history"].sql, ids)
        move.count(transaction, ((one.tenant, one.queue, one.state) for one in outlived), -1)
        transaction.connection.execute(SQL["forget_empty_counts"].sql)
    return len(outlived)


def _forget_attempts(transaction: Transaction, limit: int) -> int:
    ended_by = after(transaction.now, -transaction.retention.longest_seconds)
    bounds = {"ended_by": ended_by, "limit": limit}
    return transaction.connection.execute(SQL["forget_attempts"].sql, bounds).rowcount


def _forget_keys(transaction: Transaction, limit: int) -> int:
    bounds = {"now": transaction.now, "limit": limit}
    return transaction.connection.execute(SQL["forget_keys"].sql, bounds).rowcount


def _forget_requeues(transaction: Transaction, limit: int) -> int:
    bounds = {"now": transaction.now, "limit": limit}
    return transaction.connection.execute(SQL["forget_requeues"].sql, bounds).rowcount


def _forget_workers(transaction: Transaction, limit: int) -> int:
    bounds = {"now": transaction.now, "leases": WORKER_KEPT_LEASES, "limit": limit}
    return transaction.connection.execute(SQL["forget_workers"].sql, bounds).rowcount


def _forget_breakers(transaction: Transaction, limit: int) -> int:
    bounds = {"changed_by": after(transaction.now, -BREAKER_KEPT_SECONDS), "limit": limit}
    return transaction.connection.execute(SQL["forget_breakers"].sql, bounds).rowcount


def _fetch(transaction: Transaction, statement: str, limit: int) -> str:
    bounds = {"now": transaction.now, "limit": limit}
    rows: str = transaction.connection.execute(SQL[statement].sql, bounds).fetchone()[0]
    return rows
