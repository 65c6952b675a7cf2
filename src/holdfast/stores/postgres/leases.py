"""Leases of workers that show nothing but the lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain import codec
from holdfast.domain.job import Claimed, Lease
from holdfast.stores.postgres.rows import NO_FAILURES, Fetch


async def leased(fetch: Fetch, lease: Lease) -> Claimed | None:
    rows = await fetch("leased_with", job_id=lease.job_id, fence=lease.fence)
    return _claimed(rows[0]) if rows else None


async def leases_of(fetch: Fetch, workers: Sequence[str]) -> Mapping[str, Sequence[Claimed]]:
    found: dict[str, list[Claimed]] = defaultdict(list)
    for worker, *job in await fetch("leases_of", workers=workers):
        found[worker].append(_claimed(job))
    return found


async def assign(fetch: Fetch, owners: Mapping[Lease, str]) -> Sequence[Lease]:
    ordered = sorted(owners)
    rows = await fetch(
        "assign",
        ids=[lease.job_id for lease in ordered],
        fences=[lease.fence for lease in ordered],
        workers=[owners[lease] for lease in ordered],
    )
    assigned = {row["id"] for row in rows}
    return [lease for lease in ordered if lease.job_id not in assigned]


def _claimed(row: Sequence[Any]) -> Claimed:
    """Read a row by position, in the order of `leased.sql`."""
    *values, failures, probes, suspect, waited_seconds = row
    known = NO_FAILURES if failures is None else codec.decode(failures)
    values += known, probes, suspect, waited_seconds
    return Claimed(*values)
