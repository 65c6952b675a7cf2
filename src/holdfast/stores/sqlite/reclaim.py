"""Reclaim expired leases: all at once or, if the database refuses a job, one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import DEFAULT_TENANT, Reclaimed
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.move import Move, Place
from holdfast.stores.sqlite.rows import text
from holdfast.stores.sqlite.threads import Transaction

RECLAIM_WAIT_SECONDS_MAX = 1.0
LATE_RECLAIMS_MAX = 5  # in a row; a file that is always busy must not stop reclaiming


class _Overdue(Place, frozen=True):
    """A job to reclaim, in the order of `overdue.sql`."""

    id: UUID
    name: str
    correlation_id: str | None
    attempt: int
    fence: int
    worker: str | None
    max_attempts: int
    crashes: int
    alone: int
    suspect: int


_OVERDUE = msgspec.json.Decoder(list[_Overdue])


class Reclaimer:
    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._late = 0

    def reclaim(self, transaction: Transaction, limit: int, asked_at: float) -> Sequence[Reclaimed]:
        """Reclaim expired leases, and end jobs that expired while they waited. If the file was
        locked since `asked_at`, living workers could not renew either: let them go first."""
        late = self._seam.monotonic() - asked_at > RECLAIM_WAIT_SECONDS_MAX
        if limit and late and self._late < LATE_RECLAIMS_MAX:
            self._late += 1
            return []
        self._late = 0 if limit else self._late
        moves = [
            _after_crash(transaction, job, "LEASE_LOST", "stopped renewing its lease", "lost")
            for job in _overdue(transaction, "reclaim", limit=limit)
        ]
        moves += [
            Move(
                place=job,
                state=State.CANCELED,
                error_code="EXPIRED",
                error_text="the job expired before it started",
            )
            for job in _overdue(transaction, "expired", limit=limit - len(moves))
        ]
        return _reclaim(transaction, moves)


def reclaim_worker(
    transaction: Transaction, limit: int, worker: str, reason: str
) -> Sequence[Reclaimed]:
    """Reclaim the leases of a worker that is known to have died."""
    leased = _overdue(transaction, "reclaim_worker", limit=limit, worker=worker)
    moves = [_after_crash(transaction, job, "CRASHED", reason, "crashed") for job in leased]
    return _reclaim(transaction, moves)


def _overdue(transaction: Transaction, statement: str, /, **bounds: object) -> list[_Overdue]:
    return _OVERDUE.decode(transaction.fetch_json(statement, **bounds))


def _after_crash(
    transaction: Transaction, job: _Overdue, error_code: str, reason: str, outcome: str
) -> Move:
    """A job that ran beside others may be innocent: it gets its last attempt back, to run alone."""
    last = job.attempt >= job.max_attempts
    return Move(
        place=job,
        state=State.DEAD if last and job.alone else State.QUEUED,
        run_at=transaction.now,
        error_code=error_code,
        error_text=text(f"the worker {job.worker} {reason}"),
        attempt_back=last and not job.alone,
        crashed=True,
        suspect=bool(job.suspect)
        or job.crashes + 1 >= CRASHES_IN_COMPANY_MAX
        or job.attempt + 1 >= job.max_attempts,
        outcome=outcome,
    )


def _reclaim(transaction: Transaction, moves: Sequence[Move]) -> Sequence[Reclaimed]:
    try:
        with move.savepoint(transaction):
            move.move(transaction, moves)
    except sqlite3.IntegrityError:
        moves = _one_by_one(transaction, moves)
    transaction.wake_queues({one.place.queue for one in moves if one.state is State.QUEUED})
    return [_reclaimed(one) for one in moves]


def _one_by_one(transaction: Transaction, moves: Sequence[Move]) -> Sequence[Move]:
    """Skip jobs that the database refuses to end; raise if there are no others."""
    done: list[Move] = []
    refused: sqlite3.IntegrityError | None = None
    for one in moves:
        try:
            with move.savepoint(transaction):
                move.move(transaction, [one])
            done.append(one)
        except sqlite3.IntegrityError as error:
            refused = error
    if refused is not None and not done:
        raise refused
    return done


def _reclaimed(move: Move) -> Reclaimed:
    job = move.place
    assert isinstance(job, _Overdue)
    return Reclaimed(
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant or DEFAULT_TENANT,
        correlation_id=job.correlation_id,
        attempt=job.attempt,
        fence=job.fence + 1,
        state=move.state,
        worker=job.worker,
        error_code=move.error_code,
        suspect=move.suspect and move.state is State.QUEUED,
    )
