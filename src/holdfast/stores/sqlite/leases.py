"""Leases of workers that show nothing but the lease."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.domain.job import Claimed, Lease
from holdfast.stores.sqlite.claim import Due, claimed, in_order
from holdfast.stores.sqlite.rows import SQL, text, to_json
from holdfast.stores.sqlite.threads import Transaction


class _Leased(Due, frozen=True):
    suspect: int = 0
    worker: str = ""
    started_at: int = 0

    @property
    def claimed(self) -> Claimed:
        return msgspec.structs.replace(
            claimed(self, self.started_at),
            attempt=self.attempt,
            fence=self.fence,
            probes=self.probes,
            suspect=bool(self.suspect),
        )


_LEASED = msgspec.json.Decoder(list[_Leased])


def leased(connection: sqlite3.Connection, lease: Lease) -> Claimed | None:
    found = _fetch(connection, "leased_with", id=str(lease.job_id), fence=lease.fence)
    return found[0].claimed if found else None


def leases_of(
    connection: sqlite3.Connection, workers: Sequence[str]
) -> Mapping[str, Sequence[Claimed]]:
    found: dict[str, list[Claimed]] = defaultdict(list)
    jobs = _fetch(connection, "leases_of", workers=to_json(list(workers)))
    for job in sorted(jobs, key=in_order):
        found[job.worker].append(job.claimed)
    return found


def assign(transaction: Transaction, owners: Mapping[Lease, str]) -> Sequence[Lease]:
    return [lease for lease, worker in owners.items() if not _assign(transaction, lease, worker)]


def _assign(transaction: Transaction, lease: Lease, worker: str) -> bool:
    values = {"id": str(lease.job_id), "fence": lease.fence, "worker": text(worker)}
    return transaction.execute("assign", **values).rowcount == 1


def _fetch(connection: sqlite3.Connection, name: str, /, **values: object) -> list[_Leased]:
    return _LEASED.decode(connection.execute(SQL[name].sql, values).fetchone()[0])
