"""What the holder of a lease writes. Every write names the fence."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import Lease, Lost, Settlement, Standing
from holdfast.domain.states import State
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.move import Move, Place
from holdfast.stores.sqlite.rows import after, document, ids_to_json, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class _Leased(Place, frozen=True):
    fence: int
    index: int  # of its settlement


_LEASED = msgspec.json.Decoder(list[_Leased])
_PLACES = msgspec.json.Decoder(list[Place])
_FENCES = msgspec.json.Decoder(list[tuple[UUID, State, int]])


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> Sequence[Lost]:
    successes: list[tuple[Place, str | None]] = []
    moves: list[Move] = []
    settled: dict[int, int] = {}  # the settlement's index for each row, so that none has two
    for place in _leased(transaction, settlements):
        one = settlements[place.index]
        if one.fence != place.fence or place.number in settled:
            continue
        settled[place.number] = place.index
        if one.state is State.SUCCEEDED:
            successes.append((place, document(one.result)))
        else:
            moves.append(_move(place, one, transaction.now))
    if successes:
        move.succeed(transaction, successes)
    move.move(transaction, moves)
    due = [one for one in moves if one.state is State.QUEUED and one.run_at <= transaction.now]
    transaction.wake_queues({one.place.queue for one in due})
    if len(settled) == len(settlements):
        return []
    written = set(settled.values())
    lost = [one for index, one in enumerate(settlements) if index not in written]
    return _lost(transaction, [Lease(one.job_id, one.fence) for one in lost])


def renew(
    transaction: Transaction, leases: Sequence[Lease], lease_seconds: float
) -> Sequence[Lost]:
    until = after(transaction.now, lease_seconds)
    renewed = transaction.execute("renew", lease_expires_at=until, leases=to_json(list(leases)))
    if renewed.rowcount == len(leases):
        return []
    found = _fences(transaction, [lease.job_id for lease in leases])
    return _lost(
        transaction,
        [lease for lease in leases if found.get(lease.job_id) != (State.RUNNING, lease.fence)],
    )


def release_strays(
    transaction: Transaction, worker: str, known: Sequence[Lease], limit: int
) -> int:
    found = transaction.fetch_json(
        "release_strays", worker=text(worker), known=to_json(list(known)), limit=limit
    )
    moves = [
        Move(place=place, state=State.QUEUED, run_at=transaction.now, attempt_back=True)
        for place in _PLACES.decode(found)
    ]
    move.move(transaction, moves)
    transaction.wake_queues({one.place.queue for one in moves})
    return len(moves)


def progress(transaction: Transaction, lease: Lease, progress: bytes) -> bool:
    written = transaction.execute(
        "progress", id=str(lease.job_id), fence=lease.fence, progress=document(progress)
    )
    return written.rowcount == 1


def standing(transaction: Transaction, job_id: UUID) -> Standing | None:
    found = _fences(transaction, [job_id]).get(job_id)
    return None if found is None else Standing(*found)


def _leased(transaction: Transaction, settlements: Sequence[Settlement]) -> Sequence[_Leased]:
    """The jobs that are leased, each with its settlement's index: ids are slow to compare."""
    ids = to_json([one.job_id for one in settlements])
    return _LEASED.decode(transaction.fetch_json("leased", ids=ids))


def _move(place: Place, one: Settlement, now: int) -> Move:
    return Move(
        place=place,
        state=one.state,
        run_at=after(now, one.delay_seconds),
        error_code=text(one.error_code),
        error_text=text(one.error_text),
        attempt_back=one.attempt_back,
        snoozed=one.snoozed,
        released=one.released,
        crashed=one.crashed,
        outcome=one.outcome,
        failures=one.failures,
    )


def _lost(transaction: Transaction, leases: Sequence[Lease]) -> Sequence[Lost]:
    found = _fences(transaction, [lease.job_id for lease in leases]) if leases else {}
    return [Lost(*lease, found.get(lease.job_id, (None, 0))[0]) for lease in leases]


def _fences(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    found = _FENCES.decode(transaction.fetch_json("fences", ids=ids_to_json(job_ids)))
    return {job_id: (state, fence) for job_id, state, fence in found}
