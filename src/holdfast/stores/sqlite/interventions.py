"""What happens to jobs from outside: reclaim, cancel, retry, forgetting keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.job import Reclaimed
from holdfast.domain.states import State
from holdfast.stores.protocol import Canceled
from holdfast.stores.sqlite.enqueueing import queues_of
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.values import ids_to_json, to_json
from holdfast.stores.statements import load, read_sql
from holdfast.wakeups.protocol import Wakeup

_SQL = load(read_sql("sqlite", "writes.sql"), numbered=False)


class _Overdue(msgspec.Struct, array_like=True, frozen=True):
    """A job that is to be reclaimed, as the statements `lapsed` and `expired` tell it."""

    number: int
    id: UUID
    name: str
    queue: str
    tenant: str | None
    correlation_id: str | None
    attempt: int
    fence: int
    worker: str | None
    max_attempts: int


_OVERDUE = msgspec.json.Decoder(list[_Overdue])
_CANCELABLE = msgspec.json.Decoder(list[tuple[int, UUID, State]])


def reclaim(transaction: Transaction, limit: int) -> Sequence[Reclaimed]:
    lapsed = _overdue(transaction, "lapsed", limit)
    expired = _overdue(transaction, "expired", limit - len(lapsed))
    if lapsed:
        _write(transaction, "keep_lost_attempts", [job.number for job in lapsed])
        _write(transaction, "reclaim", [job.number for job in lapsed])
    if expired:
        _write(transaction, "expire", [job.number for job in expired])
    reclaimed = [_reclaimed(job, _after_lapse(job), "LEASE_LOST") for job in lapsed]
    transaction.wake_queues({job.queue for job in reclaimed if job.state is State.QUEUED})
    return reclaimed + [_reclaimed(job, State.CANCELED, "EXPIRED") for job in expired]


def cancel(transaction: Transaction, job_ids: Sequence[UUID]) -> Sequence[Canceled]:
    ids = {"ids": ids_to_json(job_ids)}
    found = _CANCELABLE.decode(
        transaction.connection.execute(_SQL["cancelable"].sql, ids).fetchone()[0]
    )
    if not found:
        return []
    numbers = [number for number, _, _ in found]
    _write(transaction, "keep_canceled_attempts", numbers)
    _write(transaction, "cancel", numbers)
    canceled = [Canceled(job_id, state is State.RUNNING) for _, job_id, state in found]
    transaction.wakeups += [Wakeup(canceled=job.job_id) for job in canceled if job.was_running]
    return canceled


def retry(transaction: Transaction, job_id: UUID) -> bool:
    job = {"id": str(job_id), "now": transaction.now}
    waiting = transaction.connection.execute(_SQL["retry"].sql, job).rowcount == 1
    if waiting:
        transaction.wake_queues(queues_of(transaction, [job_id]))
    return waiting


def prune_keys(transaction: Transaction, limit: int) -> int:
    bounds = {"now": transaction.now, "limit": limit}
    return transaction.connection.execute(_SQL["prune_keys"].sql, bounds).rowcount


def _overdue(transaction: Transaction, statement: str, limit: int) -> list[_Overdue]:
    bounds = {"now": transaction.now, "limit": limit}
    return _OVERDUE.decode(
        transaction.connection.execute(_SQL[statement].sql, bounds).fetchone()[0]
    )


def _after_lapse(job: _Overdue) -> State:
    return State.DEAD if job.attempt >= job.max_attempts else State.QUEUED


def _reclaimed(job: _Overdue, state: State, error_code: str) -> Reclaimed:
    return Reclaimed(
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        correlation_id=job.correlation_id,
        attempt=job.attempt,
        fence=job.fence + 1,
        state=state,
        worker=job.worker,
        error_code=error_code,
    )


def _write(transaction: Transaction, statement: str, numbers: Sequence[int]) -> None:
    values = {"numbers": to_json(numbers), "now": transaction.now}
    transaction.connection.execute(_SQL[statement].sql, values)
