"""Claims that respect the caps of queues.

Every claim leaves out capped queues, unless it knows how many jobs may start in them. To find out,
it calls `lock_caps`, which locks their rows and then counts running jobs in a newer snapshot, which
includes what others claimed under these locks before. It skips queues that another claim has
locked. All of this is one statement, so that a worker that hangs holds no lock.

The leases of ended jobs leave dead entries, like claimed jobs do: see `lanes.py`. If there are
many, the count begins where the first lease of a running job was when last looked up. What is
claimed or renewed since ends later: after the look, by at least the length of the queue's shortest
lease. Claims record that length in the queue's row. If the database's clock was set back since the
look, as our own clock tells, the count begins at the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.lanes import FAR_ENTRIES
from holdfast.stores.postgres.rows import SQL, Fetch
from holdfast.stores.protocol import Claim

LOOK_SECONDS = 1.0
FIRST_LEASE_SECONDS = 1.0  # between two looks for it, which read the leases of half a minute
BUSY_LOOK_SECONDS = 5.0  # while claims find jobs: a look would delay them


class _FirstLease(NamedTuple):
    """When the first lease of a running job ends, and when that was looked up, by the database's
    clock and by ours. Without `looked_at`, all leases are counted."""

    expires_at: datetime | None = None
    looked_at: datetime | None = None
    known_at: float = 0.0

    def values(self, now: float) -> dict[str, object]:
        return {
            "first_lease": self.expires_at,
            "looked_at": self.looked_at,
            "looked_seconds_before": now - self.known_at,
        }


def _shortest_lease_seconds(claim: Claim) -> float:
    return min(claim.lease_seconds, claim.renewal_seconds_min or claim.lease_seconds)


class Caps:
    """Run the statements that claim. Look up now and then which queues are paused or capped."""

    def __init__(self, connections: Connections, seam: Seam) -> None:
        self._connections = connections
        self._seam = seam
        self.exist = False
        self.stopped: frozenset[str] = frozenset()  # paused or capped: claims may leave jobs there
        self._looked_at: float | None = None
        self._first_lease = _FirstLease()
        self._first_lease_due_at = 0.0

    def look_again(self) -> None:
        """A cap has changed in this process."""
        self._looked_at = None

    async def claim(self, name: str, claim: Claim, **values: object) -> Sequence[Any]:
        values |= {
            "worker": claim.worker,
            "lease_seconds": claim.lease_seconds,
            "shortest_lease_seconds": _shortest_lease_seconds(claim),
            "alone": claim.alone,
            "names": claim.names,
            "queues": claim.queues,
            "except_queues": claim.except_queues,
            "tenant": claim.tenant,
        }
        if self._look_is_due(LOOK_SECONDS if self.exist else BUSY_LOOK_SECONDS):
            await self._look()
        if not self.exist:
            rows = await self._connections.fetch(SQL[name], values)
            if rows:
                return rows
            if self._look_is_due(LOOK_SECONDS):
                await self._look()
            if not self.exist:
                return []
        values |= self._first_lease.values(self._seam.monotonic())
        return await self._connections.fetch(SQL[f"{name}_with_caps"], values)

    def _look_is_due(self, seconds: float) -> bool:
        return self._looked_at is None or self._seam.monotonic() >= self._looked_at + seconds

    async def _look(self) -> None:
        self._looked_at = self._seam.monotonic()
        rows = await self._connections.fetch(SQL["caps"], {})
        self.stopped = frozenset(row["name"] for row in rows)
        self.exist = any(row["is_capped"] for row in rows)

    async def find_first_lease(self, fetch: Fetch) -> None:
        """Look up where counts begin, beside the claims: it may pass many dead entries."""
        if self.exist and self._seam.monotonic() >= self._first_lease_due_at:
            self._first_lease_due_at = self._seam.monotonic() + FIRST_LEASE_SECONDS
            last = self._first_lease.values(self._seam.monotonic())
            rows = await fetch("first_lease", **last, near_entries=FAR_ENTRIES)
            if rows:
                expires_at, looked_at = rows[0]
                self._first_lease = _FirstLease(expires_at, looked_at, self._seam.monotonic())
