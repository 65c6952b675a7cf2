"""Where jobs go at the end of an attempt: back into the queue, or into the history."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from holdfast.domain.states import State
from holdfast.stores.sqlite.rows import SQL, after, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class Place(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The row of a live job, as statements tell it: its number, and what its end is counted by."""

    number: int
    queue: str
    tenant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A job that leaves its place without a success. `outcome` names the attempt that is kept."""

    place: Place
    state: State
    run_at: int = 0
    error_code: str | None = None
    error_text: str | None = None
    attempt_back: bool = False
    snoozed: bool = False
    released: bool = False
    crashed: bool = False
    suspect: bool = False
    outcome: str | None = None

    def row(self, kept_until: int) -> tuple[object, ...]:
        return (
            self.place.number,
            self.state,
            kept_until,
            self.run_at,
            text(self.error_code),
            text(self.error_text),
            self.attempt_back,
            self.snoozed,
            self.released,
            self.crashed,
            self.suspect,
            self.outcome,
        )


def succeed(transaction: Transaction, successes: Sequence[tuple[Place, str | None]]) -> None:
    """Move jobs to the history, each with its result."""
    places = [place for place, _ in successes]
    kept = {
        queue: kept_until(transaction, queue, State.SUCCEEDED, transaction.now)
        for queue in {place.queue for place in places}
    }
    rows = [(place.number, kept[place.queue], result) for place, result in successes]
    _write(transaction, "settle_succeeded", successes=rows)
    remove(transaction, [place.number for place in places])
    count(transaction, ((place.tenant, place.queue, State.SUCCEEDED) for place in places))


def move(transaction: Transaction, moves: Sequence[Move]) -> None:
    """Keep the attempts; put the jobs back, or move them to the history."""
    if any(one.outcome is not None for one in moves):
        _write(transaction, "keep_attempts", moves=[one.row(0) for one in moves])
    back = [one for one in moves if one.state is State.QUEUED]
    if back:
        _write(transaction, "put_back", moves=[one.row(0) for one in back])
    ended = [one for one in moves if one.state is not State.QUEUED]
    if ended:
        rows = [
            one.row(kept_until(transaction, one.place.queue, one.state, transaction.now))
            for one in ended
        ]
        _write(transaction, "end", moves=rows)
        remove(transaction, [one.place.number for one in ended])
        count(transaction, ((one.place.tenant, one.place.queue, one.state) for one in ended))


@contextmanager
def savepoint(transaction: Transaction) -> Iterator[None]:
    """Take back all of the block if the database refuses a part of it."""
    transaction.connection.execute("SAVEPOINT moving")
    try:
        yield
    except sqlite3.IntegrityError:
        transaction.connection.execute("ROLLBACK TO moving")
        transaction.connection.execute("RELEASE moving")
        raise
    # Not after other errors: a full disk, say, has ended the whole transaction.
    transaction.connection.execute("RELEASE moving")


def kept_until(transaction: Transaction, queue: str, state: State, finished_at: int) -> int:
    return after(finished_at, transaction.retention.kept_seconds_of(queue, state))


def remove(transaction: Transaction, numbers: Sequence[int]) -> None:
    _write(transaction, "remove", numbers=numbers)


def count(
    transaction: Transaction, ended: Iterable[tuple[str | None, str, State]], each: int = 1
) -> None:
    """Add to the history's counts by tenant, queue and state."""
    counter = Counter((tenant or "", queue, state) for tenant, queue, state in ended)
    _write(transaction, "count", counts=[(*key, each * jobs) for key, jobs in counter.items()])


def _write(transaction: Transaction, statement: str, **rows: Sequence[object]) -> None:
    values = {name: to_json(value) for name, value in rows.items()}
    transaction.connection.execute(SQL[statement].sql, {**values, "now": transaction.now})
