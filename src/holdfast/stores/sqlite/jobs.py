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
from holdfast.stores.sqlite.rows import SQL, after, document, ids_to_json
from holdfast.stores.sqlite.threads import Transaction
from holdfast.wakeups.protocol import Wakeup


class _Cancelable(Place, frozen=True):
    id: UUID
    state: State


_CANCELABLE = msgspec.json.Decoder(list[_Cancelable])


def cancel(
    transaction: Transaction, job_ids: Sequence[UUID], waiting_only: bool
) -> Sequence[Canceled]:
    ids = {"ids": ids_to_json(job_ids), "waiting_only": int(waiting_only)}
    found = _CANCELABLE.decode(transaction.connection.execute(SQL["cancel"].sql, ids).fetchone()[0])
    move.move(transaction, [_canceled(job) for job in found])
    canceled = [Canceled(job.id, job.state is State.RUNNING) for job in found]
    transaction.wakeups += [Wakeup(canceled=job.job_id) for job in canceled if job.was_running]
    return canceled


def retry(transaction: Transaction, job_id: UUID) -> bool:
    job = {"id": str(job_id), "now": transaction.now}
    waiting = transaction.connection.execute(SQL["retry"].sql, job).rowcount == 1
    if waiting:
        transaction.wake_queues(queues_of(transaction, [job_id]))
    return waiting


def requeue(
    transaction: Transaction, job_id: UUID, new_id: UUID, arguments: bytes | None, once: bool
) -> bool:
    connection = transaction.connection
    values = {
        "id": str(job_id),
        "new_id": str(new_id),
        "now": transaction.now,
        "arguments": document(arguments),
        "kept_until": after(transaction.now, transaction.retention.longest_seconds),
    }
    if once and connection.execute(SQL["requeued_before"].sql, values).fetchone()[0]:
        return False
    try:
        requeued = connection.execute(SQL["requeue"].sql, values).rowcount == 1
    except sqlite3.IntegrityError as error:
        raise DuplicateJob(new_id) from error
    if requeued:
        connection.execute(SQL["note_requeue"].sql, values)
        transaction.wake_queues(queues_of(transaction, [new_id]))
    return requeued


def _canceled(job: _Cancelable) -> Move:
    running = job.state is State.RUNNING
    return Move(
        place=job,
        state=State.CANCELED,
        error_code="CANCELED",
        error_text=f"the job was canceled while it {'ran' if running else 'waited'}",
        outcome="canceled" if running else None,
    )
