"""Claims that keep within the caps of queues.

Every claim leaves out the queues that have a cap, unless it knows of room in them. To know that, it
locks their rows, and counts what runs in a later statement, which sees what others have claimed
under these locks before. A queue that another claim has locked is left to that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.records import fetch
from holdfast.stores.protocol import Claim
from holdfast.stores.statements import Statement

LOOK_SECONDS = 1.0
BUSY_LOOK_SECONDS = 5.0  # while claims find jobs, which a look would keep waiting


class Caps:
    """Runs the statements that claim. Whether there are caps is looked up now and then: without
    knowing, a claim leaves the capped queues out."""

    def __init__(
        self, connections: Connections, statements: Mapping[str, Statement], seam: Seam
    ) -> None:
        self._connections = connections
        self._statements = statements
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
            rows = await self._connections.fetch(
                self._statements[name], {**values, "room_queues": (), "rooms": ()}
            )
            if rows:
                return rows
            if self._look_is_due(LOOK_SECONDS):
                await self._look()
            if not self._exist:
                return []
        return await self._connections.run(
            lambda connection: self._claim_with_room(connection, name, values)
        )

    def _look_is_due(self, seconds: float) -> bool:
        return self._looked_at is None or self._seam.monotonic() >= self._looked_at + seconds

    async def _look(self) -> None:
        self._looked_at = self._seam.monotonic()
        self._exist = (await self._connections.fetch(self._statements["caps"], {}))[0][0]

    async def _claim_with_room(
        self, connection: Any, name: str, values: dict[str, object]
    ) -> Sequence[Any]:
        async with connection.transaction():
            rooms = await self._rooms(connection, values)
            return await fetch(
                connection,
                self._statements.get(f"{name}_with_room") or self._statements[name],
                room_queues=list(rooms),
                rooms=list(rooms.values()),
                **values,
            )

    async def _rooms(self, connection: Any, values: dict[str, object]) -> dict[str, int]:
        locked = await fetch(connection, self._statements["lock_capped"], **values)
        if not locked:
            return {}
        names = [row["name"] for row in locked]
        counted = await fetch(connection, self._statements["running"], queues=names)
        running = {row["queue"]: row["jobs"] for row in counted}
        rooms = {row["name"]: row["running_max"] - running.get(row["name"], 0) for row in locked}
        return {name: room for name, room in rooms.items() if room > 0}
