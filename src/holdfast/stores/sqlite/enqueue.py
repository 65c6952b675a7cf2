"""New jobs and their idempotency keys."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from holdfast.domain.errors import DuplicateJob, IdempotencyConflict
from holdfast.domain.job import NewJob, Receipt
from holdfast.stores.sqlite.rows import SQL, after, document, from_time, ids_to_json, text, to_json
from holdfast.stores.sqlite.threads import Transaction

_COLUMNS = SQL["enqueue"].sql.count(",") + 1
_ROW = f"({', '.join('?' * _COLUMNS)})"
_ROWS_MAX = 100
_INSERTS = [
    " ".join([SQL["enqueue"].sql, ", ".join([_ROW] * rows)]) for rows in range(_ROWS_MAX + 1)
]


def enqueue(transaction: Transaction, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
    receipts = [_receipt(transaction, job) for job in jobs]
    created = [job for job, receipt in zip(jobs, receipts, strict=True) if receipt.created]
    due_queues = set()
    for start in range(0, len(created), _ROWS_MAX):
        due_queues |= _insert(transaction, created[start : start + _ROWS_MAX])
    _refuse_ended(transaction, [job.id for job in created if job.id_is_chosen])
    transaction.wake_queues(due_queues)
    return receipts


def queues_of(transaction: Transaction, job_ids: Sequence[UUID]) -> list[str]:
    return [queue for (queue,) in transaction.execute("queues_of", ids=ids_to_json(job_ids))]


def _receipt(transaction: Transaction, job: NewJob) -> Receipt:
    """Return the job that holds the key; a free key goes to this job."""
    if job.idempotency_key is None:
        return Receipt(job.id, True)
    key = {
        "tenant": text(job.named_tenant) or "",
        "key": text(job.idempotency_key),
        "job_id": str(job.id),
        "body_hash": job.body_hash or b"",
        "expires_at": after(transaction.now, job.key_kept_seconds),
    }
    holder = transaction.execute("kept_keys", **key).fetchone()
    if holder is None:
        transaction.execute("keep_keys", **key)
        return Receipt(job.id, True)
    if not job.has_body(holder[1]):
        raise IdempotencyConflict(job.idempotency_key, UUID(holder[0]))
    return Receipt(UUID(holder[0]), False)


def _insert(transaction: Transaction, jobs: Sequence[NewJob]) -> set[str]:
    """Insert at most _ROWS_MAX jobs; return the queues of those that are due."""
    values: list[object] = []
    due_queues = set()
    for job in jobs:
        run_at = (
            from_time(job.run_at)
            if job.run_at is not None
            else after(transaction.now, job.delay_seconds)
        )
        if run_at <= transaction.now:
            due_queues.add(job.queue)
        values += _row(job, transaction.now, run_at)
    try:
        transaction.connection.execute(_INSERTS[len(jobs)], values)
    except sqlite3.IntegrityError as error:
        if (duplicate := _duplicate(transaction, jobs)) is not None:
            raise DuplicateJob(duplicate) from error
        raise
    return due_queues


def _refuse_ended(transaction: Transaction, chosen: Sequence[UUID]) -> None:
    if chosen:
        ended = transaction.execute("ended_id", ids=ids_to_json(chosen)).fetchone()
        if ended is not None:
            raise DuplicateJob(UUID(ended[0]))


def _row(job: NewJob, now: int, run_at: int) -> tuple[object, ...]:
    """The values of the columns in `enqueue`, in their order."""
    expires_in = job.expires_in_seconds
    return (
        str(job.id),
        text(job.name),
        text(job.queue),
        job.priority,
        document(job.arguments),
        job.max_attempts,
        run_at,
        None if expires_in is None else after(now, expires_in),
        now,
        text(job.named_tenant),
        text(job.correlation_id),
        to_json([text(tag) for tag in job.tags]) if job.tags else "[]",
        text(job.idempotency_key),
        text(job.breaker),
        text(job.trace),
        None if job.parent_id is None else str(job.parent_id),
    )


def _duplicate(transaction: Transaction, jobs: Sequence[NewJob]) -> UUID | None:
    seen = Counter(job.id for job in jobs)
    job_id, times = seen.most_common(1)[0]
    if times > 1:
        return job_id
    existing = transaction.execute("live_id", ids=ids_to_json(seen)).fetchone()
    return None if existing is None else UUID(existing[0])
