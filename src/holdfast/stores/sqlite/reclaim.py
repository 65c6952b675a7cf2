"""Taking back what ran out, together if possible, and one by one around what can't be ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.move import Move, Place
from holdfast.stores.sqlite.rows import SQL
from holdfast.stores.sqlite.threads import Transaction

RECLAIM_WAIT_SECONDS_MAX = 1.0
LATE_RECLAIMS_MAX = 5  # in a row; then a file that is always busy keeps nobody from renewing


class _Overdue(Place, frozen=True):
    """A job that is to be reclaimed, as the statements that find them tell it."""

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
        """Take back leases that ran out, and end jobs that expired while they waited. Whoever kept
        the file locked since `asked_at` kept the living from renewing: they come first."""
        late = self._seam.monotonic() - asked_at > RECLAIM_WAIT_SECONDS_MAX
        if limit and late and self._late < LATE_RECLAIMS_MAX:
            self._late += 1
            return []
        self._late = 0 if limit else self._late
        lapsed = _overdue(transaction, "reclaim", limit)
        expired = _overdue(transaction, "expired", limit - len(lapsed))
        moves = [
            _after_crash(transaction, job, "LEASE_LOST", "stopped renewing its lease", "lost")
            for job in lapsed
        ]
        moves += [
            Move(
                place=job,
                state=State.CANCELED,
                error_code="EXPIRED",
                error_text="the job expired before it started",
            )
            for job in expired
        ]
        return _reclaim(transaction, [*lapsed, *expired], moves)


def reclaim_worker(
    transaction: Transaction, limit: int, worker: str, reason: str
) -> Sequence[Reclaimed]:
    """Take back the leases of a worker that is known to have died."""
    leased = _overdue(transaction, "reclaim_worker", limit, worker)
    moves = [_after_crash(transaction, job, "CRASHED", reason, "crashed") for job in leased]
    return _reclaim(transaction, leased, moves)


def _overdue(
    transaction: Transaction, statement: str, limit: int, worker: str = ""
) -> list[_Overdue]:
    bounds = {"now": transaction.now, "limit": limit, "worker": worker}
    return _OVERDUE.decode(transaction.connection.execute(SQL[statement].sql, bounds).fetchone()[0])


def _after_crash(
    transaction: Transaction, job: _Overdue, error_code: str, reason: str, outcome: str
) -> Move:
    """A job that was in company may be innocent: it gets its last attempt back, to be alone."""
    last = job.attempt >= job.max_attempts
    return Move(
        place=job,
        state=State.DEAD if last and job.alone else State.QUEUED,
        run_at=transaction.now,
        error_code=error_code,
        error_text=f"the worker {job.worker} {reason}",
        attempt_back=last and not job.alone,
        crashed=True,
        suspect=bool(job.suspect)
        or job.crashes + 1 >= CRASHES_IN_COMPANY_MAX
        or job.attempt + 1 >= job.max_attempts,
        outcome=outcome,
    )


def _reclaim(
    transaction: Transaction, jobs: Sequence[_Overdue], moves: Sequence[Move]
) -> Sequence[Reclaimed]:
    try:
        with move.savepoint(transaction):
            move.move(transaction, moves)
        done = list(zip(jobs, moves, strict=True))
    except sqlite3.IntegrityError:
        done = _one_by_one(transaction, list(zip(jobs, moves, strict=True)))
    transaction.wake_queues({one.place.queue for _, one in done if one.state is State.QUEUED})
    return [_reclaimed(job, one) for job, one in done]


def _one_by_one(
    transaction: Transaction, moves: Sequence[tuple[_Overdue, Move]]
) -> list[tuple[_Overdue, Move]]:
    """Pass over jobs that the database does not let end; say so if there are no others."""
    done: list[tuple[_Overdue, Move]] = []
    refused: sqlite3.IntegrityError | None = None
    for job, one in moves:
        try:
            with move.savepoint(transaction):
                move.move(transaction, [one])
            done.append((job, one))
        except sqlite3.IntegrityError as error:
            refused = error
    if refused is not None and not done:
        raise refused
    return done


def _reclaimed(job: _Overdue, move: Move) -> Reclaimed:
    return Reclaimed(
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        correlation_id=job.correlation_id,
        attempt=job.attempt,
        fence=job.fence + 1,
        state=move.state,
        worker=job.worker,
        error_code=move.error_code,
        suspect=move.suspect and move.state is State.QUEUED,
    )
