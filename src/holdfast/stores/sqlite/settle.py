"""All that the holder of a lease may write, each time naming its fence."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import Lease, Lost, Settlement, Standing
from holdfast.domain.states import State
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.move import Move, Place
from holdfast.stores.sqlite.rows import SQL, after, document, ids_to_json, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class _Leased(Place, frozen=True):
    id: UUID
    fence: int


_LEASED = msgspec.json.Decoder(list[_Leased])
_PLACES = msgspec.json.Decoder(list[Place])
_FENCES = msgspec.json.Decoder(list[tuple[UUID, State, int]])


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> Sequence[Lost]:
    leased = _leased(transaction, [one.job_id for one in settlements])
    successes: list[tuple[Place, str | None]] = []
    moves: list[Move] = []
    lost: list[Settlement] = []
    for one in settlements:
        # Taken out, so that nobody settles the same lease twice.
        place = leased.pop((one.job_id, one.fence), None)
        if place is None:
            lost.append(one)
        elif one.state is State.SUCCEEDED:
            successes.append((place, document(one.result)))
        else:
            moves.append(_move(place, one, transaction.now))
    if successes:
        move.succeed(transaction, successes)
    if moves:
        move.move(transaction, moves)
    due = [one for one in moves if one.state is State.QUEUED and one.run_at <= transaction.now]
    transaction.wake_queues({one.place.queue for one in due})
    return _lost(transaction, [Lease(one.job_id, one.fence) for one in lost])


def renew(
    transaction: Transaction, leases: Sequence[Lease], lease_seconds: float
) -> Sequence[Lost]:
    renewal = {
        "lease_expires_at": after(transaction.now, lease_seconds),
        "leases": to_json(list(leases)),
    }
    renewed = transaction.connection.execute(SQL["renew"].sql, renewal).rowcount
    if renewed == len(leases):
        return []
    found = _fences(transaction, [lease.job_id for lease in leases])
    return _lost(
        transaction,
        [lease for lease in leases if found.get(lease.job_id) != (State.RUNNING, lease.fence)],
    )


def release_strays(
    transaction: Transaction, worker: str, known: Sequence[Lease], limit: int
) -> int:
    wanted = {"worker": text(worker), "known": to_json(list(known)), "limit": limit}
    found = transaction.connection.execute(SQL["release_strays"].sql, wanted).fetchone()[0]
    places = _PLACES.decode(found)
    if places:
        now = transaction.now
        move.move(
            transaction,
            [Move(place=one, state=State.QUEUED, run_at=now, attempt_back=True) for one in places],
        )
        transaction.wake_queues({one.queue for one in places})
    return len(places)


def progress(transaction: Transaction, lease: Lease, progress: bytes) -> bool:
    report = {"id": str(lease.job_id), "fence": lease.fence, "progress": document(progress)}
    return transaction.connection.execute(SQL["progress"].sql, report).rowcount == 1


def standing(transaction: Transaction, job_id: UUID) -> Standing | None:
    found = _fences(transaction, [job_id]).get(job_id)
    return None if found is None else Standing(*found)


def _leased(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[tuple[UUID, int], Place]:
    ids = {"ids": ids_to_json(job_ids)}
    rows = _LEASED.decode(transaction.connection.execute(SQL["leased"].sql, ids).fetchone()[0])
    return {(row.id, row.fence): row for row in rows}


def _move(place: Place, one: Settlement, now: int) -> Move:
    return Move(
        place=place,
        state=one.state,
        run_at=after(now, one.delay_seconds),
        error_code=one.error_code,
        error_text=one.error_text,
        attempt_back=one.attempt_back,
        snoozed=one.snoozed,
        released=one.released,
        crashed=one.crashed,
        outcome=one.outcome,
    )


def _lost(transaction: Transaction, leases: Sequence[Lease]) -> Sequence[Lost]:
    found = _fences(transaction, [lease.job_id for lease in leases]) if leases else {}
    return [Lost(*lease, found.get(lease.job_id, (None, 0))[0]) for lease in leases]


def _fences(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    ids = {"ids": ids_to_json(job_ids)}
    found = _FENCES.decode(transaction.connection.execute(SQL["fences"].sql, ids).fetchone()[0])
    return {job_id: (state, fence) for job_id, state, fence in found}
