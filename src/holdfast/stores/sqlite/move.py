"""Where a job goes at the end of an attempt: back into its queue, or into the history."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from holdfast.domain.states import State
from holdfast.stores.sqlite.rows import after, to_json
from holdfast.stores.sqlite.threads import Transaction


class Place(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The row number of a live job, and what its end is counted by."""

    number: int
    queue: str
    tenant: str | None


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that leaves its place without a success, by the names that the statements read.

    `outcome` names the attempt to keep, if there is one.
    """

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
    failures: Mapping[str, int] | None = None
    kept_until: int = 0


def succeed(transaction: Transaction, successes: Sequence[tuple[Place, str | None]]) -> None:
    """Move jobs to the history, each with its result."""
    places = [place for place, _ in successes]
    kept = {
        queue: kept_until(transaction, queue, State.SUCCEEDED, transaction.now)
        for queue in {place.queue for place in places}
    }
    rows = [(place.number, kept[place.queue], result) for place, result in successes]
    transaction.execute("settle_succeeded", successes=to_json(rows))
    remove(transaction, places)
    count(transaction, ((place.tenant, place.queue, State.SUCCEEDED) for place in places))


def move(transaction: Transaction, moves: Sequence[Move]) -> None:
    """Keep the attempts; put the jobs back, or move them to the history."""
    if any(one.outcome is not None for one in moves):
        transaction.execute("keep_attempts", moves=to_json(moves))
    back = [one for one in moves if one.state is State.QUEUED]
    if back:
        transaction.execute("put_back", moves=to_json(back))
    ended = [
        msgspec.structs.replace(
            one, kept_until=kept_until(transaction, one.place.queue, one.state, transaction.now)
        )
        for one in moves
        if one.state is not State.QUEUED
    ]
    if ended:
        transaction.execute("end", moves=to_json(ended))
        remove(transaction, [one.place for one in ended])
        count(transaction, ((one.place.tenant, one.place.queue, one.state) for one in ended))


@contextmanager
def savepoint(transaction: Transaction) -> Iterator[None]:
    """Undo the whole block if the database refuses a part of it."""
    transaction.connection.execute("SAVEPOINT moving")
    try:
        yield
    except sqlite3.IntegrityError:
        transaction.connection.execute("ROLLBACK TO moving")
        transaction.connection.execute("RELEASE moving")
        raise
    # Not after other errors: a full disk, for example, has ended the whole transaction.
    transaction.connection.execute("RELEASE moving")


def kept_until(transaction: Transaction, queue: str, state: State, finished_at: int) -> int:
    return after(finished_at, transaction.retention.kept_seconds_of(queue, state))


def remove(transaction: Transaction, places: Sequence[Place]) -> None:
    transaction.execute("remove", numbers=to_json([place.number for place in places]))


def count(
    transaction: Transaction, ended: Iterable[tuple[str | None, str, State]], each: int = 1
) -> None:
    """Add to the history's counts by tenant, queue and state."""
    counter = Counter((tenant or "", queue, state) for tenant, queue, state in ended)
    rows = [(*key, each * jobs) for key, jobs in counter.items()]
    transaction.execute("count", counts=to_json(rows))
