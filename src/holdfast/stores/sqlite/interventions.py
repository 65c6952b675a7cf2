"""What happens to jobs from outside: reclaim, cancel, retry."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.states import State
from holdfast.stores.protocol import Canceled
from holdfast.stores.sqlite import moving
from holdfast.stores.sqlite.enqueueing import queues_of
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.moving import Move, Place
from holdfast.stores.sqlite.values import ids_to_json
from holdfast.stores.statements import load, read_sql
from holdfast.wakeups.protocol import Wakeup

_SQL = load(read_sql("sqlite", "writes.sql"), numbered=False)


class _Overdue(Place, frozen=True):
    """A job that is to be reclaimed, as `lapsed`, `held_by` and `expired` tell it."""

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


class _Cancelable(Place, frozen=True):
    id: UUID
    state: State


_OVERDUE = msgspec.json.Decoder(list[_Overdue])
_CANCELABLE = msgspec.json.Decoder(list[_Cancelable])


def reclaim(transaction: Transaction, limit: int) -> Sequence[Reclaimed]:
    """Take back leases that ran out, and end jobs that expired while they waited."""
    lapsed = _overdue(transaction, "lapsed", limit)
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


def reclaim_from(
    transaction: Transaction, limit: int, worker: str, reason: str
) -> Sequence[Reclaimed]:
    """Take back the leases of a worker that is known to have died."""
    held = _overdue(transaction, "held_by", limit, worker)
    moves = [_after_crash(transaction, job, "CRASHED", reason, "crashed") for job in held]
    return _reclaim(transaction, held, moves)


def cancel(
    transaction: Transaction, job_ids: Sequence[UUID], waiting_only: bool
) -> Sequence[Canceled]:
    ids = {"ids": ids_to_json(job_ids), "waiting_only": int(waiting_only)}
    found = _CANCELABLE.decode(
        transaction.connection.execute(_SQL["cancelable"].sql, ids).fetchone()[0]
    )
    moving.move(transaction, [_canceled(job) for job in found])
    canceled = [Canceled(job.id, job.state is State.RUNNING) for job in found]
    transaction.wakeups += [Wakeup(canceled=job.job_id) for job in canceled if job.was_running]
    return canceled


def retry(transaction: Transaction, job_id: UUID) -> bool:
    job = {"id": str(job_id), "now": transaction.now}
    waiting = transaction.connection.execute(_SQL["retry"].sql, job).rowcount == 1
    if waiting:
        transaction.wake_queues(queues_of(transaction, [job_id]))
    return waiting


def _overdue(
    transaction: Transaction, statement: str, limit: int, worker: str = ""
) -> list[_Overdue]:
    bounds = {"now": transaction.now, "limit": limit, "worker": worker}
    return _OVERDUE.decode(
        transaction.connection.execute(_SQL[statement].sql, bounds).fetchone()[0]
    )


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
        with moving.savepoint(transaction):
            moving.move(transaction, moves)
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
            with moving.savepoint(transaction):
                moving.move(transaction, [one])
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


def _canceled(job: _Cancelable) -> Move:
    running = job.state is State.RUNNING
    return Move(
        place=job,
        state=State.CANCELED,
        error_code="CANCELED",
        error_text=f"the job was canceled while it {'ran' if running else 'waited'}",
        outcome="canceled" if running else None,
    )
