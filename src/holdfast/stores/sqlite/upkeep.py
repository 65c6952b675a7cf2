"""Upkeep in bounded steps: delete what has outlived its retention, move what ended in place."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.domain.limits import BREAKER_KEPT_SECONDS, WORKER_KEPT_LEASES
from holdfast.domain.states import State
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.rows import after, to_json
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
    """Return how many rows there were to do, or why the remaining ones can't be done."""
    moved, refused = _move_leftovers(transaction, limit)
    done = moved + _forget_history(transaction, limit - moved)
    now, retention = transaction.now, transaction.retention
    for step, values in (
        ("forget_attempts", {"ended_by": after(now, -retention.longest_seconds)}),
        ("forget_keys", {}),
        ("forget_requeues", {}),
        ("forget_workers", {"leases": WORKER_KEPT_LEASES}),
        ("forget_breakers", {"changed_by": after(now, -BREAKER_KEPT_SECONDS)}),
    ):
        if done < limit:
            done += transaction.execute(step, limit=limit - done, **values).rowcount
    if refused is None or done == limit:
        return done, None
    return (limit, None) if moved else (done, refused)


def _move_leftovers(
    transaction: Transaction, limit: int
) -> tuple[int, sqlite3.IntegrityError | None]:
    leftovers = _LEFTOVERS.decode(transaction.fetch_json("leftovers", limit=limit))
    if not leftovers:
        return 0, None
    try:
        _move(transaction, leftovers)
        return len(leftovers), None
    except sqlite3.IntegrityError:
        moved, refused = 0, None
    # One by one, to skip those that the database refuses to move.
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
        transaction.execute("move_leftovers", leftovers=to_json(rows))
        move.remove(transaction, leftovers)
        move.count(transaction, ((one.tenant, one.queue, one.state) for one in leftovers))


def _forget_history(transaction: Transaction, limit: int) -> int:
    outlived = _OUTLIVED.decode(transaction.fetch_json("outlived", limit=limit))
    if outlived:
        transaction.execute("forget_history", ids=to_json([one.id for one in outlived]))
        move.count(transaction, ((one.tenant, one.queue, one.state) for one in outlived), -1)
        transaction.execute("forget_empty_counts")
    return len(outlived)
