"""What operators do to one job: cancel, retry, requeue."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.domain.errors import DuplicateJob
from holdfast.domain.states import State
from holdfast.stores.protocol import Canceled
from holdfast.stores.sqlite import move
from holdfast.stores.sqlite.enqueue import queues_of
from holdfast.stores.sqlite.move import Move, Place
from holdfast.stores.sqlite.rows import after, document, ids_to_json, text
from holdfast.stores.sqlite.threads import Transaction
from holdfast.wakeups.protocol import Wakeup


class _Cancelable(Place, frozen=True):
    id: UUID
    state: State


_CANCELABLE = msgspec.json.Decoder(list[_Cancelable])


def cancel(
    transaction: Transaction, job_ids: Sequence[UUID], waiting_only: bool, reason: str | None
) -> Sequence[Canceled]:
    rows = transaction.fetch_json("cancel", ids=ids_to_json(job_ids), waiting_only=waiting_only)
    found = _CANCELABLE.decode(rows)
    move.move(transaction, [_canceled(job, text(reason)) for job in found])
    canceled = [Canceled(job.id, job.state is State.RUNNING) for job in found]
    transaction.wakeups += [Wakeup(canceled=job.job_id) for job in canceled if job.was_running]
    return canceled


def retry(transaction: Transaction, job_id: UUID) -> bool:
    waiting = transaction.execute("retry", id=str(job_id)).rowcount == 1
    if waiting:
        transaction.wake_queues(queues_of(transaction, [job_id]))
    return waiting


def requeue(
    transaction: Transaction, job_id: UUID, new_id: UUID, arguments: bytes | None, once: bool
) -> bool:
    ids = {"id": str(job_id), "new_id": str(new_id)}
    if once and transaction.execute("requeued_before", **ids).fetchone()[0]:
        return False
    try:
        requeued = transaction.execute("requeue", **ids, arguments=document(arguments)).rowcount
    except sqlite3.IntegrityError as error:
        raise DuplicateJob(new_id) from error
    if requeued:
        kept_until = after(transaction.now, transaction.retention.longest_seconds)
        transaction.execute("note_requeue", **ids, kept_until=kept_until)
        transaction.wake_queues(queues_of(transaction, [new_id]))
    return bool(requeued)


def _canceled(job: _Cancelable, reason: str | None) -> Move:
    running = job.state is State.RUNNING
    return Move(
        place=job,
        state=State.CANCELED,
        error_code="CANCELED",
        error_text=reason or f"the job was canceled while it {'ran' if running else 'waited'}",
        outcome="canceled" if running else None,
    )
