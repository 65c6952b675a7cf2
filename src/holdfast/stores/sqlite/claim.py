"""Claims: find due jobs lane by lane, and lease them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from operator import itemgetter
from uuid import UUID

import msgspec

from holdfast.domain.job import Claimed
from holdfast.domain.limits import PROBE_LOOK_MAX, PROBES_MAX
from holdfast.stores.protocol import Claim
from holdfast.stores.sqlite import breakers, queues
from holdfast.stores.sqlite.rows import after, seconds_since, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class Due(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job that may be claimed, in the order of `due.sql`."""

    number: int
    id: UUID
    name: str
    arguments: str
    queue: str
    priority: int
    tenant: str
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
    failures: dict[str, int] | None
    probes: int = 0  # not from all statements


_DUE = msgspec.json.Decoder(list[Due])


def claim(transaction: Transaction, claim: Claim, turn: int) -> Sequence[Claimed]:
    wanted = {"names": to_json(list(claim.names)), "tenant": claim.tenant}
    caps = queues.caps(transaction)
    due: list[Due] = []
    lanes = 0
    for queue, priority in _lanes(transaction, claim, turn):
        if len(due) >= claim.limit:
            break
        limit = caps.bound(queue, claim.limit - len(due))
        if limit:
            found = _due_in_lane(transaction, wanted, queue, priority, limit)
            caps.take(queue, len(found))
            lanes += bool(found)
            due += found
    if lanes > 1:
        due.sort(key=in_order)
    return _lease(transaction, due, claim, caps.capped)


def in_order(job: Due) -> tuple[int, int, int]:
    return job.priority, job.run_at, job.id.int


def claim_suspect(transaction: Transaction, claim: Claim) -> Claimed | None:
    caps = queues.caps(transaction)
    due = _due(transaction, "claim_suspect", **_bounds(claim, caps))
    leased = _lease(transaction, due, claim._replace(alone=True), caps.capped)
    return next(iter(leased), None)


def claim_by_id(
    transaction: Transaction, job_id: UUID, worker: str, lease_seconds: float
) -> Claimed | None:
    caps = queues.caps(transaction)
    due = _due(transaction, "claim_by_id", id=str(job_id))
    due = [job for job in due if caps.bound(job.queue, 1)]
    claim = Claim(worker=worker, limit=1, lease_seconds=lease_seconds, names=())
    return next(iter(_lease(transaction, due, claim, caps.capped)), None)


def claim_probes(transaction: Transaction, claim: Claim) -> Sequence[Claimed]:
    caps = queues.caps(transaction)
    bounds = _bounds(claim, caps)
    bounds |= {"limit": min(claim.limit, PROBES_MAX), "look_max": PROBE_LOOK_MAX}
    probes = []
    for job in _due(transaction, "claim_probes", **bounds):
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
    """Lanes with due jobs, best priority first. Queues of equal priority take turns."""
    lanes = [
        lane
        for lane in transaction.execute("lanes").fetchall()
        if (claim.queues is None or lane[0] in claim.queues) and lane[0] not in claim.except_queues
    ]
    lanes.sort(key=itemgetter(1, 0))
    for _, equals in groupby(lanes, key=itemgetter(1)):
        lane_list = list(equals)
        first = turn % len(lane_list)
        yield from lane_list[first:]
        yield from lane_list[:first]


def _bounds(claim: Claim, caps: queues.Caps) -> dict[str, object]:
    return {
        "names": to_json(list(claim.names)),
        "queues": None if claim.queues is None else to_json(list(claim.queues)),
        "except_queues": to_json([*claim.except_queues, *caps.paused_or_full]),
        "tenant": claim.tenant,
    }


def _due(transaction: Transaction, statement: str, /, **bounds: object) -> list[Due]:
    return _DUE.decode(transaction.fetch_json(statement, **bounds))


def _due_in_lane(
    transaction: Transaction, wanted: Mapping[str, object], queue: str, priority: int, limit: int
) -> list[Due]:
    """Ask for fewer if they don't fit into one text, which SQLite limits to a gigabyte."""
    lane = {"queue": queue, "priority": priority}
    while True:
        try:
            return _due(transaction, "claim", **wanted, **lane, limit=limit)
        except sqlite3.DataError:
            if limit == 1:
                raise
            limit = max(1, limit // 8)


def _lease(
    transaction: Transaction, due: Sequence[Due], claim: Claim, capped: Set[str]
) -> Sequence[Claimed]:
    if not due:
        return []
    transaction.execute(
        "lease",
        worker=text(claim.worker),
        lease_expires_at=after(transaction.now, claim.lease_seconds),
        alone=claim.alone,
        numbers=to_json([job.number for job in due]),
    )
    now = transaction.now
    return [
        claimed(
            job,
            now,
            expired=job.expires_at is not None and job.expires_at <= now,
            capped=job.queue in capped,
        )
        for job in due
    ]


def claimed(job: Due, started_at: int, *, expired: bool = False, capped: bool = False) -> Claimed:
    """The job, once it is leased. By position, which is faster: every job passes here."""
    return Claimed(
        job.id,
        job.name,
        job.arguments.encode(),
        job.queue,
        job.priority,
        job.tenant,
        job.correlation_id,
        job.attempt + 1,
        job.max_attempts,
        job.fence + 1,
        job.snoozes,
        job.releases,
        expired,
        job.breaker,
        job.trace,
        capped,
        job.failures or {},
        waited_seconds=seconds_since(job.run_at, started_at),
    )
