"""What the driver knows of PostgreSQL's types, once for all connections.

The driver itself asks the server about array types on every connection, by a query that takes
longer than most of ours. Those that PostgreSQL brings along are the same on every server: what one
connection was told serves all of this process. Should the driver ask in another way one day, it
asks again on every connection, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

BUILT_IN_OID_MAX = 9999  # given out by hand, and never to another type
# bool, bytea, smallint, integer, bigint, float8, timestamptz, json, uuid; it knows text.
ARRAYS_USED = frozenset({1000, 1001, 1005, 1007, 1016, 1022, 1185, 199, 2951})


class _Known(NamedTuple):
    oids: frozenset[int] = frozenset()
    types: Sequence[Any] = ()


class _NothingAsked(NamedTuple):
    """In place of the statement that asked. The driver prepares anew what one without a name took
    the place of."""

    name: str = "none"


@cache
def connection_class(driver: Any) -> Any:
    """The driver's connection, which asks about every built-in type once in a process."""
    known = _Known()

    class Connection(driver.Connection):  # type: ignore[misc]
        __slots__ = ()

        async def _introspect_types(self, typeoids: Iterable[int], timeout: Any) -> Any:
            nonlocal known
            wanted = frozenset(typeoids)
            if max(wanted) > BUILT_IN_OID_MAX:
                return await super()._introspect_types(typeoids, timeout)
            if wanted <= known.oids:
                return known.types, _NothingAsked()
            asked = wanted | known.oids | ARRAYS_USED
            types, statement = await super()._introspect_types(asked, timeout)
            known = _Known(asked, types)
            return types, statement

    return Connection
