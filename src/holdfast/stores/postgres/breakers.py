"""Breakers: failures that are counted, jobs that are held and let go, and those sent ahead.

A job is only held under a lock of its breaker's row, while that is open. Whoever closes or forgets
the breaker locks the row and looks for held jobs in a later statement, so that none is overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from holdfast.domain.breakers import Breaker, Holding, Strike
from holdfast.domain.job import Claimed
from holdfast.domain.limits import PROBES_MAX
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.records import fetch, to_claimed
from holdfast.stores.protocol import Claim
from holdfast.stores.statements import Statement

PROBE_LOOK_MAX: Final = 10_000  # held jobs of a breaker that one look for a probe reads
STRIKE_WAIT_SECONDS: Final = 0.5  # for whoever holds the row of a breaker; then nothing is counted


class Breakers:
    def __init__(
        self, connections: Connections, statements: Mapping[str, Statement], caps: Caps
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._caps = caps

    async def strike(self, strikes: Sequence[Strike]) -> list[bool]:
        if not strikes:
            return []
        rows = await self._run(
            "strike",
            keys=[strike.key for strike in strikes],
            failures_max=[strike.failures_max for strike in strikes],
            window_seconds=[strike.window_seconds for strike in strikes],
            probe_seconds=[strike.probe_seconds for strike in strikes],
            becauses=[strike.because for strike in strikes],
            wait_seconds=STRIKE_WAIT_SECONDS,
        )
        answers = {row["key"]: iter(row["answers"]) for row in rows}
        return [next(answers[strike.key]) for strike in strikes]

    async def open(self, key: str, by: str | None, because: str | None) -> None:
        usual = Breaker(key)
        await self._run(
            "open_breaker",
            key=key,
            by=by,
            because=because,
            window_seconds=usual.window_seconds,
            probe_seconds=usual.probe_seconds,
        )

    async def close(self, key: str, *, by_hand: bool) -> bool:
        return bool(await self._run("close_breaker", key=key, by_hand=by_hand))

    async def forget(self, key: str) -> bool:
        return await self._connections.run(lambda connection: self._forget(connection, key))

    async def _forget(self, connection: Any, key: str) -> bool:
        async with connection.transaction():
            known = await self._fetch(connection, "lock_breaker", key=key)
            if known:
                await self._fetch(connection, "forget_breaker", key=key)
        return bool(known)

    async def hold(self, limit: int) -> Holding:
        return await self._connections.run(
            lambda connection: self._hold(connection, limit), aside=True
        )

    async def _hold(self, connection: Any, limit: int) -> Holding:
        # First those that can run again.
        async with connection.transaction():
            let_go = await self._let_go(connection, limit)
        ((parked, probe_in_seconds),) = await self._fetch(connection, "park", limit=limit - let_go)
        if probe_in_seconds is not None:
            probe_in_seconds = max(0.0, probe_in_seconds)
        return Holding(let_go + parked, probe_in_seconds)

    async def _let_go(self, connection: Any, limit: int) -> int:
        locked = await self._fetch(connection, "lock_letting_go", limit=limit)
        if not locked:
            return 0
        keys = [row["key"] for row in locked]
        ((moved, _),) = await self._fetch(connection, "let_go", keys=keys, limit=limit)
        await self._fetch(connection, "end_letting_go", keys=keys)
        return int(moved)

    async def claim_probes(self, claim: Claim) -> list[Claimed]:
        rows = await self._caps.claim(
            "claim_probes",
            claim,
            limit=min(claim.limit, PROBES_MAX),
            look_max=PROBE_LOOK_MAX,
        )
        if not rows:
            await self._run("pass_over", look_max=PROBE_LOOK_MAX)
        return [replace(to_claimed(row), probe=True) for row in rows]

    async def _run(self, name: str, **values: object) -> Sequence[Any]:
        return await self._connections.fetch(self._statements[name], values)

    async def _fetch(self, connection: Any, name: str, **values: object) -> Sequence[Any]:
        return await fetch(connection, self._statements[name], **values)
