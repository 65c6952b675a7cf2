"""Claims that keep within the caps of queues.

Every claim leaves out the capped queues, unless it knows how many jobs may start in them. For that
it calls `lock_caps`, which locks their rows, and then counts what runs with a newer view: it sees
what others have claimed under these locks before. A queue that another claim has locked is left to
that one. All of it is one statement, so that a worker which stands still keeps no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.protocol import Claim

LOOK_SECONDS = 1.0
BUSY_LOOK_SECONDS = 5.0  # while claims find jobs, which a look would keep waiting


class Caps:
    """Runs the statements that claim. Whether there are caps is looked up now and then: without
    knowing, a claim leaves the capped queues out."""

    def __init__(self, connections: Connections, seam: Seam) -> None:
        self._connections = connections
        self._seam = seam
        self._exist = False
        self._looked_at: float | None = None

    def look_again(self) -> None:
        """Somebody in this process has said something about a cap."""
        self._looked_at = None

    async def claim(self, name: str, claim: Claim, **values: object) -> Sequence[Any]:
        values |= {
            "worker": claim.worker,
            "lease_seconds": claim.lease_seconds,
            "alone": claim.alone,
            "names": claim.names,
            "queues": claim.queues,
            "except_queues": claim.except_queues,
        }
        if self._look_is_due(LOOK_SECONDS if self._exist else BUSY_LOOK_SECONDS):
            await self._look()
        if not self._exist:
            rows = await self._connections.fetch(SQL[name], values)
            if rows:
                return rows
            if self._look_is_due(LOOK_SECONDS):
                await self._look()
            if not self._exist:
                return []
        return await self._connections.fetch(SQL[f"{name}_with_caps"], values)

    def _look_is_due(self, seconds: float) -> bool:
        return self._looked_at is None or self._seam.monotonic() >= self._looked_at + seconds

    async def _look(self) -> None:
        self._looked_at = self._seam.monotonic()
        self._exist = (await self._connections.fetch(SQL["caps"], {}))[0][0]
