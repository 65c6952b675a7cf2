"""Claims, and all that the holder of a lease may write, each time naming its fence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.job import Claimed, Lease, Lost, Settlement, Standing
from holdfast.domain.limits import PROBES_MAX
from holdfast.domain.states import State
from holdfast.stores.protocol import Claim
from holdfast.stores.sqlite import breakers, moving, queues
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.moving import Move, Place
from holdfast.stores.sqlite.values import after, document, ids_to_json, text, to_json
from holdfast.stores.statements import Statement, load, read_sql

_SQL = load(read_sql("sqlite", "writes.sql"), numbered=False)
_HOLDS = load(read_sql("sqlite", "holds.sql"), numbered=False)


class _Due(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job that may be claimed, as the statements `due_jobs`, `due_job` and the like tell it."""

    number: int
    id: UUID
    name: str
    arguments: str
    queue: str
    priority: int
    tenant: str | None
    correlation_id: str | None
    attempt: int
    max_attempts: int
    fence: int
    snoozes: int
    releases: int
    expires_at: int | None
    run_at: int
    breaker: str | None
    trace: str | None


class _Held(Place, frozen=True):
    id: UUID
    fence: int


_DUE = msgspec.json.Decoder(list[_Due])
_HELD = msgspec.json.Decoder(list[_Held])
_PLACES = msgspec.json.Decoder(list[Place])
_FOUND = msgspec.json.Decoder(list[tuple[UUID, State, int]])


def claim(transaction: Transaction, claim: Claim, turn: int) -> Sequence[Claimed]:
    names = to_json(list(claim.names))
    rooms = queues.rooms(transaction)
    due: list[_Due] = []
    for queue, priority in _lanes(transaction, claim, turn):
        if len(due) >= claim.limit:
            break
        lane = {
            "queue": queue,
            "priority": priority,
            "now": transaction.now,
            "names": names,
            "limit": rooms.bound(queue, claim.limit - len(due)),
        }
        if lane["limit"]:
            found = _due_that_fit(transaction, lane)
            rooms.take(queue, len(found))
            due += found
    due.sort(key=lambda job: (job.priority, job.run_at, job.id.int))
    return _lease(transaction, due, claim, rooms.capped)


def claim_suspect(transaction: Transaction, claim: Claim) -> Claimed | None:
    rooms = queues.rooms(transaction)
    due = _due(transaction, _SQL["due_suspect"], _bounds(transaction, claim, rooms))
    leased = _lease(transaction, due, claim._replace(alone=True), rooms.capped)
    return next(iter(leased), None)


def claim_by_id(
    transaction: Transaction, job_id: UUID, worker: str, lease_seconds: float
) -> Claimed | None:
    rooms = queues.rooms(transaction)
    due = _due(transaction, _SQL["due_job"], {"id": str(job_id), "now": transaction.now})
    due = [job for job in due if rooms.bound(job.queue, 1)]
    claim = Claim(worker=worker, limit=1, lease_seconds=lease_seconds, names=())
    return next(iter(_lease(transaction, due, claim, rooms.capped)), None)


def claim_probes(transaction: Transaction, claim: Claim) -> Sequence[Claimed]:
    rooms = queues.rooms(transaction)
    bounds = _bounds(transaction, claim, rooms)
    bounds["limit"] = min(claim.limit, PROBES_MAX)
    probes = []
    for job in _due(transaction, _HOLDS["due_probes"], bounds):
        if rooms.bound(job.queue, 1):
            rooms.take(job.queue, 1)
            probes.append(job)
    if probes:
        sent = [(job.breaker, job.id, job.number) for job in probes]
        breakers.sent_ahead(transaction, sent)
    leased = _lease(transaction, probes, claim, rooms.capped)
    return [msgspec.structs.replace(job, probe=True) for job in leased]


def renew(
    transaction: Transaction, leases: Sequence[Lease], lease_seconds: float
) -> Sequence[Lost]:
    renewal = {
        "lease_expires_at": after(transaction.now, lease_seconds),
        "leases": to_json(list(leases)),
    }
    renewed = transaction.connection.execute(_SQL["renew"].sql, renewal).rowcount
    if renewed == len(leases):
        return []
    found = _found(transaction, [lease.job_id for lease in leases])
    return _lost(
        transaction,
        [lease for lease in leases if found.get(lease.job_id) != (State.RUNNING, lease.fence)],
    )


def release_strays(
    transaction: Transaction, worker: str, known: Sequence[Lease], limit: int
) -> int:
    wanted = {"worker": text(worker), "known": to_json(list(known)), "limit": limit}
    found = transaction.connection.execute(_SQL["strays"].sql, wanted).fetchone()[0]
    places = _PLACES.decode(found)
    if places:
        now = transaction.now
        moving.move(
            transaction,
            [Move(place=one, state=State.QUEUED, run_at=now, attempt_back=True) for one in places],
        )
        transaction.wake_queues({one.queue for one in places})
    return len(places)


def progress(transaction: Transaction, lease: Lease, progress: bytes) -> bool:
    report = {"id": str(lease.job_id), "fence": lease.fence, "progress": document(progress)}
    return transaction.connection.execute(_SQL["progress"].sql, report).rowcount == 1


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> Sequence[Lost]:
    held = _held(transaction, [one.job_id for one in settlements])
    successes: list[tuple[Place, str | None]] = []
    moves: list[Move] = []
    lost: list[Settlement] = []
    for one in settlements:
        # Taken out, so that nobody settles the same lease twice.
        place = held.pop((one.job_id, one.fence), None)
        if place is None:
            lost.append(one)
        elif one.state is State.SUCCEEDED:
            successes.append((place, document(one.result)))
        else:
            moves.append(_move(place, one, transaction.now))
    if successes:
        moving.succeed(transaction, successes)
    if moves:
        moving.move(transaction, moves)
    due = [one for one in moves if one.state is State.QUEUED and one.run_at <= transaction.now]
    transaction.wake_queues({one.place.queue for one in due})
    return _lost(transaction, [Lease(one.job_id, one.fence) for one in lost])


def standing(transaction: Transaction, job_id: UUID) -> Standing | None:
    found = _found(transaction, [job_id]).get(job_id)
    return None if found is None else Standing(*found)


def _lanes(transaction: Transaction, claim: Claim, turn: int) -> Iterator[tuple[str, int]]:
    """Lanes with due jobs, best priority first; queues of equal priority take turns to be first."""
    lanes = [
        lane
        for lane in transaction.connection.execute(
            _SQL["due_lanes"].sql, {"now": transaction.now}
        ).fetchall()
        if (claim.queues is None or lane[0] in claim.queues) and lane[0] not in claim.except_queues
    ]
    lanes.sort(key=itemgetter(1, 0))
    for _, equals in groupby(lanes, key=itemgetter(1)):
        lane_list = list(equals)
        first = turn % len(lane_list)
        yield from lane_list[first:]
        yield from lane_list[:first]


def _bounds(transaction: Transaction, claim: Claim, rooms: queues.Rooms) -> dict[str, object]:
    return {
        "now": transaction.now,
        "names": to_json(list(claim.names)),
        "queues": None if claim.queues is None else to_json(list(claim.queues)),
        "except_queues": to_json([*claim.except_queues, *rooms.shut]),
    }


def _due(
    transaction: Transaction, statement: Statement, bounds: Mapping[str, object]
) -> list[_Due]:
    return _DUE.decode(transaction.connection.execute(statement.sql, bounds).fetchone()[0])


def _due_that_fit(transaction: Transaction, lane: dict[str, Any]) -> list[_Due]:
    """Ask for fewer where SQLite can't make one text of them, which may hold a gigabyte."""
    while True:
        try:
            return _due(transaction, _SQL["due_jobs"], lane)
        except sqlite3.DataError:
            if lane["limit"] == 1:
                raise
            lane["limit"] = max(1, lane["limit"] // 8)


def _lease(
    transaction: Transaction,
    due: Sequence[_Due],
    claim: Claim,
    capped: Set[str] = frozenset(),
) -> Sequence[Claimed]:
    if not due:
        return []
    lease = {
        "worker": text(claim.worker),
        "lease_expires_at": after(transaction.now, claim.lease_seconds),
        "now": transaction.now,
        "alone": int(claim.alone),
        "numbers": to_json([job.number for job in due]),
    }
    transaction.connection.execute(_SQL["lease"].sql, lease)
    return [_claimed(job, transaction.now, job.queue in capped) for job in due]


def _claimed(job: _Due, now: int, capped: bool) -> Claimed:
    return Claimed(
        id=job.id,
        name=job.name,
        arguments=job.arguments.encode(),
        queue=job.queue,
        priority=job.priority,
        tenant=job.tenant,
        correlation_id=job.correlation_id,
        attempt=job.attempt + 1,
        max_attempts=job.max_attempts,
        fence=job.fence + 1,
        snoozes=job.snoozes,
        releases=job.releases,
        expired=job.expires_at is not None and job.expires_at <= now,
        breaker=job.breaker,
        trace=job.trace,
        capped=capped,
    )


def _held(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[tuple[UUID, int], Place]:
    ids = {"ids": ids_to_json(job_ids)}
    rows = _HELD.decode(transaction.connection.execute(_SQL["held"].sql, ids).fetchone()[0])
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
    found = _found(transaction, [lease.job_id for lease in leases]) if leases else {}
    return [Lost(*lease, found.get(lease.job_id, (None, 0))[0]) for lease in leases]


def _found(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    ids = {"ids": ids_to_json(job_ids)}
    found = _FOUND.decode(transaction.connection.execute(_SQL["found"].sql, ids).fetchone()[0])
    return {job_id: (state, fence) for job_id, state, fence in found}
