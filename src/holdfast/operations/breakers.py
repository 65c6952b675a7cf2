"""List, open, close and reset breakers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.errors import WrongState
from holdfast.domain.texts import check_name
from holdfast.operations.desk import Desk, check_operator
from holdfast.runtime.blocking import blocking
from holdfast.stores import protocol
from holdfast.stores.protocol import require


class Breakers:
    """`hf.breakers`: list, open, close and reset breakers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._run_sync = desk.run_sync

    async def list(self) -> Sequence[BreakerStatus]:
        """Return the breakers that counted a failure or were opened, open ones first."""
        return await (await self._breakers()).breakers()

    async def get(self, key: str) -> BreakerStatus | None:
        """Return a breaker, or None if it has no record."""
        check_name("breaker's key", key)
        return next((each for each in await self.list() if each.key == key), None)

    async def open(self, key: str, *, by: str | None = None, because: str | None = None) -> None:
        """Park all jobs of this key, without probes, until you call `close`.

        A breaker that opened on its own then stays open too.
        """
        check_name("breaker's key", key)
        check_operator(by, because)
        await (await self._breakers()).open_breaker(key, by, because)

    async def keys(self) -> set[str]:
        """Return the keys of recorded breakers and of those that jobs here name."""
        named = (each.breaker.key for each in self._desk.definitions.values() if each.breaker)
        recorded = {each.key for each in await self.list()}
        return {key for key in named if isinstance(key, str)} | recorded

    async def close(self, key: str) -> None:
        """Unpark the jobs, and count failures from zero."""
        check_name("breaker's key", key)
        if not await (await self._breakers()).close_breaker(key):
            raise WrongState(f"breaker {key} is not open; nothing was changed")

    async def reset(self, key: str) -> None:
        """Close the breaker if it is open, and delete its record."""
        check_name("breaker's key", key)
        if not await (await self._breakers()).close_breaker(key, forget=True):
            raise WrongState(f"breaker {key} does not exist; nothing was changed")

    async def _breakers(self) -> protocol.Breakers:
        return require(await self._desk.store(), protocol.Breakers, "keep breakers")

    list_sync = blocking(list)
    get_sync = blocking(get)
    open_sync = blocking(open)
    keys_sync = blocking(keys)
    close_sync = blocking(close)
    reset_sync = blocking(reset)
