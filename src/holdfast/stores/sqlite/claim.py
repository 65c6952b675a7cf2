"""Claims: due jobs are found lane by lane, and leased."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.job import Claimed
from holdfast.domain.limits import PROBE_LOOK_MAX, PROBES_MAX
from holdfast.stores.protocol import Claim
from holdfast.stores.sqlite import breakers, queues
from holdfast.stores.sqlite.rows import SQL, after, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class _Due(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job that may be claimed, as the statements that find them tell it."""

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
    probes: int = 0  # of those that `claim_probes` tells


_DUE = msgspec.json.Decoder(list[_Due])


def claim(transaction: Transaction, claim: Claim, turn: int) -> Sequence[Claimed]:
    names = to_json(list(claim.names))
    caps = queues.caps(transaction)
    due: list[_Due] = []
    for queue, priority in _lanes(transaction, claim, turn):
        if len(due) >= claim.limit:
            break
        lane = {
            "queue": queue,
            "priority": priority,
            "now": transaction.now,
            "names": names,
            "limit": caps.bound(queue, claim.limit - len(due)),
        }
        if lane["limit"]:
            found = _due_that_fit(transaction, lane)
            caps.take(queue, len(found))
            due += found
    due.sort(key=lambda job: (job.priority, job.run_at, job.id.int))
    return _lease(transaction, due, claim, caps.capped)


def claim_suspect(transaction: Transaction, claim: Claim) -> Claimed | None:
    caps = queues.caps(transaction)
    due = _due(transaction, "claim_suspect", _bounds(transaction, claim, caps))
    leased = _lease(transaction, due, claim._replace(alone=True), caps.capped)
    return next(iter(leased), None)


def claim_by_id(
    transaction: Transaction, job_id: UUID, worker: str, lease_seconds: float
) -> Claimed | None:
    caps = queues.caps(transaction)
    due = _due(transaction, "claim_by_id", {"id": str(job_id), "now": transaction.now})
    due = [job for job in due if caps.bound(job.queue, 1)]
    claim = Claim(worker=worker, limit=1, lease_seconds=lease_seconds, names=())
    return next(iter(_lease(transaction, due, claim, caps.capped)), None)


def claim_probes(transaction: Transaction, claim: Claim) -> Sequence[Claimed]:
    caps = queues.caps(transaction)
    bounds = _bounds(transaction, claim, caps)
    bounds |= {"limit": min(claim.limit, PROBES_MAX), "look_max": PROBE_LOOK_MAX}
    probes = []
    for job in _due(transaction, "claim_probes", bounds):
        if caps.bound(job.queue, 1):
            caps.take(job.queue, 1)
            probes.append(job)
    if probes:
        breakers.send_probes(transaction, [(job.breaker, job.number) for job in probes])
    leased = _lease(transaction, probes, claim, caps.capped)
    return [
        msgspec.structs.replace(job, probes=before.probes + 1)
        for job, before in zip(leased, probes, strict=True)
    ]


def _lanes(transaction: Transaction, claim: Claim, turn: int) -> Iterator[tuple[str, int]]:
    """Lanes with due jobs, best priority first; queues of equal priority take turns to be first."""
    lanes = [
        lane
        for lane in transaction.connection.execute(
            SQL["lanes"].sql, {"now": transaction.now}
        ).fetchall()
        if (claim.queues is None or lane[0] in claim.queues) and lane[0] not in claim.except_queues
    ]
    lanes.sort(key=itemgetter(1, 0))
    for _, equals in groupby(lanes, key=itemgetter(1)):
        lane_list = list(equals)
        first = turn % len(lane_list)
        yield from lane_list[first:]
        yield from lane_list[:first]


def _bounds(transaction: Transaction, claim: Claim, caps: queues.Caps) -> dict[str, object]:
    return {
        "now": transaction.now,
        "names": to_json(list(claim.names)),
        "queues": None if claim.queues is None else to_json(list(claim.queues)),
        "except_queues": to_json([*claim.except_queues, *caps.paused_or_full]),
    }


def _due(transaction: Transaction, statement: str, bounds: Mapping[str, object]) -> list[_Due]:
    return _DUE.decode(transaction.connection.execute(SQL[statement].sql, bounds).fetchone()[0])


def _due_that_fit(transaction: Transaction, lane: dict[str, Any]) -> list[_Due]:
    """Ask for fewer where SQLite can't make one text of them, which may hold a gigabyte."""
    while True:
        try:
            return _due(transaction, "claim", lane)
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
    transaction.connection.execute(SQL["lease"].sql, lease)
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
