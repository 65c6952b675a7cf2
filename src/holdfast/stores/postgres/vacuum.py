"""Vacuum the live jobs when many of their rows are dead, without waiting for autovacuum.

Each job leaves two dead rows. Autovacuum looks once a minute by default, so at a steady rate the
table has room for all dead rows of a minute. It no longer fits into the server's memory, every
checkpoint logs more pages, and claims and settlements cost a fifth more.

Any worker may do this: the server skips a table that is being vacuumed. An old transaction keeps
dead rows, and a vacuum finds out only at the end. So if the last one, whoever ran it, cleared less
than half, they rest and leave the table to autovacuum.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.rows import SQL

DEAD_MIN: Final = 50_000
DEAD_SHARE: Final = 0.2  # of the live rows: the indexes are read in full
BETWEEN_SECONDS: Final = 8.0
REST_SECONDS: Final = 300.0


class Counted(NamedTuple):
    """What the server has counted, without reading the table. `changes` only grows: each leaves a
    dead row. `vacuumed_at` and `server_time` are seconds of the server's clock."""

    dead: int
    live: int
    changes: int
    vacuumed_at: float | None
    server_time: float


class Pace:
    """Decides when to vacuum, from what it is shown every few seconds."""

    def __init__(self) -> None:
        self._last: Counted | None = None
        self._resting_until = 0.0

    def is_due(self, counted: Counted) -> bool:
        last, self._last = self._last, counted
        if last is not None and self._cleared_little(last, counted):
            self.rest(counted)
        since = counted.vacuumed_at
        return (
            counted.dead >= max(DEAD_MIN, DEAD_SHARE * counted.live)
            and counted.server_time >= self._resting_until
            and (since is None or counted.server_time >= since + BETWEEN_SECONDS)
        )

    def rest(self, counted: Counted) -> None:
        self._resting_until = counted.server_time + REST_SECONDS

    @staticmethod
    def _cleared_little(last: Counted, counted: Counted) -> bool:
        """Was there a vacuum since, and did it leave most of what was dead?"""
        cleared = last.dead + counted.changes - last.changes - counted.dead
        return (
            counted.vacuumed_at != last.vacuumed_at
            and last.dead >= DEAD_MIN
            and cleared < last.dead / 2
        )


class Vacuum:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._pace = Pace()

    async def run(self) -> None:
        """Vacuum if that is due."""
        rows = await self._connections.fetch(SQL["dead_rows"], {}, aside=True)
        if not rows or self._connections.needs_transactions:
            return  # It may not vacuum; or it could only in a transaction, where nobody can.
        counted = Counted(**rows[0])
        if self._pace.is_due(counted):
            try:
                await self._connections.run(_vacuum, aside=True)
            except BaseException:
                self._pace.rest(counted)
                raise


async def _vacuum(connection: Any) -> None:
    await connection.execute(SQL["vacuum"].sql)
