"""Recognize a connection's library by the names of its classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from holdfast.domain.errors import BadArguments
from holdfast.transactions.drivers.protocol import Foreign

W = TypeVar("W")

_in_sync_twin: ContextVar[bool] = ContextVar("holdfast_in_sync_twin", default=False)


# One object for all threads or tasks, behind which each has its own.
_PROXIES: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("sqlalchemy", "async_scoped_session"): lambda it: it(),
    ("sqlalchemy", "scoped_session"): lambda it: it(),
    ("django", "ConnectionProxy"): lambda it: it.features.connection,
}


def recognize(connection: Any) -> Foreign:
    enrolment: Callable[[], Foreign] | None = getattr(connection, "__holdfast_foreign__", None)
    if enrolment is not None:
        return enrolment()
    from holdfast.transactions.drivers.ways import WAYS  # which most programs don't need

    way = _find(WAYS, connection := itself(connection))
    if way is not None:
        return way(connection)
    raise BadArguments(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a supported"
        " connection; pass a connection of asyncpg, psycopg, psycopg2, sqlite3 or Django, a"
        " connection or session of SQLAlchemy, sync or async, or that of ctx.completing()"
    )


def itself(connection: Any) -> Any:
    """The connection behind a proxy, or else the connection."""
    connection = getattr(connection, "__holdfast_connection__", connection)
    proxied = _find(_PROXIES, connection)
    return connection if proxied is None else proxied(connection)


def _find(known: Mapping[tuple[str, str], W], connection: Any) -> W | None:
    for kind in type(connection).__mro__:
        found = known.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found
    return None


def recognize_async(connection: Any, instead: str) -> Foreign:
    """Reject a connection that would block the event loop. `instead` names the other method."""
    foreign = recognize(connection)
    if not foreign.is_async:
        raise BadArguments(
            f"{_name(connection)} is not async and would block the event loop: use {instead}"
        )
    return foreign


def recognize_sync(connection: Any, instead: str) -> Foreign:
    foreign = recognize(connection)
    if foreign.is_async:
        raise BadArguments(f"{_name(connection)} is async: use {instead}")
    return foreign


@contextmanager
def in_sync_twin() -> Iterator[None]:
    """Inside the block, the caller of a coroutine method is its sync twin."""
    token = _in_sync_twin.set(True)
    try:
        yield
    finally:
        _in_sync_twin.reset(token)


def recognize_callers(connection: Any, method: str) -> Foreign:
    """Recognize a connection that was passed to this method, or to its sync twin."""
    if _in_sync_twin.get():
        return recognize_sync(connection, f"await {method}(...)")
    return recognize_async(connection, f"{method}_sync(...)")


def _name(connection: Any) -> str:
    kind = type(connection)
    return f"a {kind.__name__} of {kind.__module__.partition('.')[0]}"
