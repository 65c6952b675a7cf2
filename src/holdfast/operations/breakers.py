"""`hf.breakers`: open, close and reset the breakers of what jobs depend on."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.errors import WrongState
from holdfast.domain.texts import check_name
from holdfast.operations.desk import Desk, check_operator
from holdfast.stores import protocol
from holdfast.stores.protocol import capability, require


class Breakers:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self) -> Sequence[BreakerStatus]:
        """The breakers of which something is known, open ones first."""
        breakers = capability(await self._desk.store(), protocol.Breakers)
        return [] if breakers is None else await breakers.breakers()

    async def open(self, key: str, *, by: str | None = None, because: str | None = None) -> None:
        """Hold all jobs of this key, and send none ahead, until `close`.

        One that has opened by itself stays open then, whatever its jobs would come to.
        """
        check_name("breaker's key", key)
        check_operator(by, because)
        await (await self._breakers()).open_breaker(key, by, because)

    async def keys(self) -> set[str]:
        """The keys of which something is recorded, and those that job functions name."""
        named = (each.breaker.key for each in self._desk.definitions.values() if each.breaker)
        recorded = {each.key for each in await self.list()}
        return {key for key in named if isinstance(key, str)} | recorded

    async def close(self, key: str) -> None:
        """Let the jobs go that it holds, and begin to count failures anew."""
        check_name("breaker's key", key)
        if not await (await self._breakers()).close_breaker(key):
            raise WrongState(f"breaker {key} is not open; nothing was changed")

    async def reset(self, key: str) -> None:
        """Close it if it is open, and forget all that is known of it."""
        check_name("breaker's key", key)
        if not await (await self._breakers()).close_breaker(key, forget=True):
            raise WrongState(f"there is no breaker {key}; nothing was changed")

    async def _breakers(self) -> protocol.Breakers:
        return require(await self._desk.store(), protocol.Breakers, "keep breakers")
