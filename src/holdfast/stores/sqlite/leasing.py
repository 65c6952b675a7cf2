"""Claims, and all that the holder of a lease may write, each time naming its fence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from uuid import UUID

import msgspec

from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.domain.states import State
from holdfast.stores.protocol import Claim
from holdfast.stores.sqlite.enqueueing import queues_of
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.values import after, document, ids_to_json, text, to_json
from holdfast.stores.statements import load, read_sql

_SQL = load(read_sql("sqlite", "writes.sql"), numbered=False)


class _Due(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job that may be claimed, as the statements `due_jobs` and `due_job` tell it."""

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


_DUE = msgspec.json.Decoder(list[_Due])
_FOUND = msgspec.json.Decoder(list[tuple[UUID, State, int]])


def claim(transaction: Transaction, claim: Claim, turn: int) -> Sequence[Claimed]:
    names = to_json(list(claim.names))
    due: list[_Due] = []
    for queue, priority in _lanes(transaction, claim, turn):
        if len(due) >= claim.limit:
            break
        lane = {
            "queue": queue,
            "priority": priority,
            "now": transaction.now,
            "names": names,
            "limit": claim.limit - len(due),
        }
        due += _DUE.decode(transaction.connection.execute(_SQL["due_jobs"].sql, lane).fetchone()[0])
    due.sort(key=lambda job: (job.priority, job.run_at, job.id.int))
    return _lease(transaction, due, claim.worker, claim.lease_seconds)


def claim_by_id(
    transaction: Transaction, job_id: UUID, worker: str, lease_seconds: float
) -> Claimed | None:
    job = {"id": str(job_id), "now": transaction.now}
    due = _DUE.decode(transaction.connection.execute(_SQL["due_job"].sql, job).fetchone()[0])
    return next(iter(_lease(transaction, due, worker, lease_seconds)), None)


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
    return [
        Lost(lease.job_id, lease.fence, found.get(lease.job_id, (None, 0))[0])
        for lease in leases
        if found.get(lease.job_id) != (State.RUNNING, lease.fence)
    ]


def progress(transaction: Transaction, lease: Lease, progress: bytes) -> bool:
    report = {"id": str(lease.job_id), "fence": lease.fence, "progress": document(progress)}
    return transaction.connection.execute(_SQL["progress"].sql, report).rowcount == 1


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> Sequence[Lost]:
    """Settle all at once; only if some were lost find out which, one by one."""
    transaction.connection.execute("SAVEPOINT settle")
    lost: list[Settlement] = []
    if _settle_all(transaction, settlements) != len(settlements):
        transaction.connection.execute("ROLLBACK TO settle")
        lost = [one for one in settlements if not _settle_all(transaction, [one])]
    transaction.connection.execute("RELEASE settle")
    _wake_released(transaction, settlements)
    found = _found(transaction, [one.job_id for one in lost]) if lost else {}
    return [Lost(one.job_id, one.fence, found.get(one.job_id, (None, 0))[0]) for one in lost]


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


def _lease(
    transaction: Transaction, due: Sequence[_Due], worker: str, lease_seconds: float
) -> Sequence[Claimed]:
    if not due:
        return []
    lease = {
        "worker": text(worker),
        "lease_expires_at": after(transaction.now, lease_seconds),
        "now": transaction.now,
        "numbers": to_json([job.number for job in due]),
    }
    transaction.connection.execute(_SQL["lease"].sql, lease)
    return [_claimed(job, transaction.now) for job in due]


def _claimed(job: _Due, now: int) -> Claimed:
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
    )


def _settle_all(transaction: Transaction, settlements: Sequence[Settlement]) -> int:
    successes = [one for one in settlements if _is_plain_success(one)]
    others = [one for one in settlements if not _is_plain_success(one)]
    settled = 0
    if successes:
        rows = [(one.job_id, one.fence, document(one.result)) for one in successes]
        settled += _write(transaction, "succeed", rows)
    if others:
        rows_of_others = [_settlement_row(one, transaction.now) for one in others]
        if any(one.outcome is not None for one in others):
            _write(transaction, "keep_attempts", rows_of_others)
        settled += _write(transaction, "settle", rows_of_others)
    return settled


def _is_plain_success(one: Settlement) -> bool:
    return (
        one.state is State.SUCCEEDED
        and one.outcome is None
        and not (one.attempt_back or one.snoozed or one.released)
    )


def _settlement_row(one: Settlement, now: int) -> tuple[object, ...]:
    return (
        one.job_id,
        one.fence,
        one.state,
        after(now, one.delay_seconds),
        document(one.result),
        text(one.error_code),
        text(one.error_text),
        int(one.attempt_back),
        int(one.snoozed),
        int(one.released),
        one.outcome,
    )


def _write(transaction: Transaction, statement: str, rows: Sequence[object]) -> int:
    values = {"settlements": to_json(rows), "now": transaction.now}
    return transaction.connection.execute(_SQL[statement].sql, values).rowcount


def _wake_released(transaction: Transaction, settlements: Sequence[Settlement]) -> None:
    released = [
        one.job_id for one in settlements if one.state is State.QUEUED and one.delay_seconds <= 0
    ]
    if released:
        transaction.wake_queues(queues_of(transaction, released))


def _found(transaction: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, tuple[State, int]]:
    ids = {"ids": ids_to_json(job_ids)}
    found = _FOUND.decode(transaction.connection.execute(_SQL["found"].sql, ids).fetchone()[0])
    return {job_id: (state, fence) for job_id, state, fence in found}
