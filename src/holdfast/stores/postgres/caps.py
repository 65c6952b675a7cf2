"""Claims that respect the caps of queues.

Every claim leaves out capped queues, unless it knows how many jobs may start in them. To find out,
it calls `lock_caps`, which locks their rows and then counts running jobs in a newer snapshot, which
includes what others claimed under these locks before. It skips queues that another claim has
locked. All of this is one statement, so that a worker that hangs holds no lock.

The leases of ended jobs leave dead entries, like claimed jobs do: see `lanes.py`. If there are
many, the count begins where the first lease of a running job was when last looked up. Leases are
only ever extended, and new ones end later: by the length of the shortest lease that is taken in the
queue, which claims note in its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.lanes import FAR_ENTRIES
from holdfast.stores.postgres.rows import SQL, Fetch
from holdfast.stores.protocol import Claim

LOOK_SECONDS = 1.0
BUSY_LOOK_SECONDS = 5.0  # while claims find jobs: a look would delay them
LATE_CLAIM = timedelta(seconds=2)  # `lock_caps` has it, too


class _FirstLease(NamedTuple):
    """Of the running jobs, at the time of a look. Without the time, count all leases."""

    expires_at: datetime | None
    looked_at: datetime | None

    @property
    def is_after(self) -> datetime | None:
        """No lease ends before this, nor one that was taken since, however short it is."""
        if self.looked_at is None:
            return None
        since = self.looked_at - LATE_CLAIM
        return since if self.expires_at is None else min(self.expires_at, since)


class Caps:
    """Run the statements that claim. Look up now and then which queues are paused or capped."""

    def __init__(self, connections: Connections, seam: Seam) -> None:
        self._connections = connections
        self._seam = seam
        self.exist = False
        self.stopped: frozenset[str] = frozenset()  # paused or capped: claims may leave jobs there
        self._looked_at: float | None = None
        self._first_lease = _FirstLease(None, None)

    def look_again(self) -> None:
        """A cap has changed in this process."""
        self._looked_at = None

    async def claim(self, name: str, claim: Claim, **values: object) -> Sequence[Any]:
        values |= {
            "worker": claim.worker,
            "lease_seconds": claim.lease_seconds,
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
        values["first_lease"] = self._first_lease.expires_at
        values["first_lease_looked_at"] = self._first_lease.looked_at
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
        if self.exist:
            since = self._first_lease.is_after
            rows = await fetch("first_lease", since=since, near_entries=FAR_ENTRIES)
            if rows:
                self._first_lease = _FirstLease(*rows[0])
