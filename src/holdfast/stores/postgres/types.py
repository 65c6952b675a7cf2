"""How our connections differ from the driver's: types, times, and how transactions begin and end.

The driver asks the server about array types on every connection, with a query that takes longer
than most of ours. PostgreSQL's built-in types are the same on every server, so one answer serves
the whole process. If a future driver asks in another way, it asks on every connection again, and
nothing else changes.

PostgreSQL's times go beyond Python's, to infinity on both sides. There, the driver raises, or
returns a time without a zone. One such row would keep all others from being read.

A transaction's settings travel with its BEGIN, in one message. With two, a client that hangs in
between would leave a transaction open without its limits.

A canceled transaction is rolled back within a second, or its connection is closed: a server that
does not answer must not keep a worker from stopping in time. Try the rollback first: a statement
that waits for a lock would keep waiting, and keep its own locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from holdfast.domain.times import FIRST, LAST

BUILT_IN_OID_MAX = 9999  # assigned by hand, and never to another type
# bool, bytea, smallint, integer, bigint, float8, timestamptz, json, uuid; the driver knows text.
ARRAYS_USED = frozenset({1000, 1001, 1005, 1007, 1016, 1022, 1185, 199, 2951})
BEGIN = "BEGIN"  # as the driver begins transactions

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL's
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = (FIRST - _EPOCH) // _MICROSECOND
_LAST: Final = (LAST - _EPOCH) // _MICROSECOND
_INFINITY: Final = 2**63 - 1


class _Known(NamedTuple):
    oids: frozenset[int] = frozenset()
    types: Sequence[Any] = ()


class _NothingAsked(NamedTuple):
    """Stands for the statement that would have asked. It has a name, because the driver prepares a
    statement again if an unnamed one has replaced it."""

    name: str = "none"


ROLLBACK_SECONDS_MAX: Final = 1.0


@cache
def connection_class(driver: Any) -> Any:
    """The driver's connection, but it asks about each built-in type once per process.

    `begin` adds settings to the statement that begins a transaction. `is_ours` means that the
    engine uses it: nobody uses it after a cancel, and an inner transaction needs no savepoint,
    because an error ends the outer one."""
    known = _Known()

    class Transaction(driver.transaction.Transaction):  # type: ignore[misc]
        settings = ""

        async def start(self) -> None:
            self._connection.settings = self.settings
            await super().start()

        async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
            if not self._connection.is_ours or not isinstance(error, asyncio.CancelledError):
                await super().__aexit__(kind, error, traceback)
                return
            try:
                async with asyncio.timeout(ROLLBACK_SECONDS_MAX):
                    await super().__aexit__(kind, error, traceback)
            except Exception:
                self._connection.terminate()
            except BaseException:
                self._connection.terminate()
                raise

    class Connection(driver.Connection):  # type: ignore[misc]
        begin: Callable[[str], str] = str
        settings = ""
        is_ours = False

        def transaction(self, *, isolation: Any = None, settings: str = "", **options: bool) -> Any:
            if self.is_ours and self.is_in_transaction():
                return nullcontext()
            modes = {"readonly": False, "deferrable": False} | options
            transaction = Transaction(self, isolation, **modes)
            transaction.settings = settings
            return transaction

        async def execute(self, query: str, *args: Any, **options: Any) -> Any:
            if query.startswith(BEGIN):
                query = f"{self.begin(query.rstrip(';'))}; {self.settings}"
            return await super().execute(query, *args, **options)

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


async def take_values_as_ours(connection: Any) -> None:
    """Pass JSON as bytes, and read any stored time as one that Python can represent."""
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=from_time, decoder=to_time, format="tuple"
    )


def to_time(value: tuple[int]) -> datetime:
    microseconds = value[0]
    if _FIRST <= microseconds <= _LAST:
        return _EPOCH + timedelta(0, 0, microseconds)  # by position: every claimed job has one
    return FIRST if microseconds < 0 else LAST


def from_time(value: datetime) -> tuple[int]:
    """The first and the last time stand for all beyond, so that a claim can continue from one."""
    if value.tzinfo is None:
        raise OverflowError(f"the time {value.isoformat()} has no time zone")
    if FIRST < value < LAST:
        return ((value - _EPOCH) // _MICROSECOND,)
    return (-_INFINITY - 1 if value <= FIRST else _INFINITY,)
