"""Errors of the caller's connection, unwrapped from those of its library."""

from __future__ import annotations

from typing import Any

_WRAPPERS = frozenset({"sqlalchemy", "django"})
_DRIVERS = frozenset({"asyncpg", "psycopg", "psycopg2", "sqlite3"})
_INTEGRITY = "23"  # the class of SQLSTATE


class DriverError(Exception):
    """An error of PostgreSQL or of the connection to it, from any driver."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.sqlstate: str | None = getattr(error, "sqlstate", None) or getattr(
            error, "pgcode", None
        )
        self.detail: str = getattr(error, "detail", None) or str(error)


def unwrapped(error: BaseException) -> BaseException:
    """The driver's error inside one of SQLAlchemy or Django."""
    while _package(error) in _WRAPPERS:
        inner: Any = getattr(error, "orig", None) or error.__cause__
        if inner is None:
            break
        error = inner
    return error


def is_of_driver(error: BaseException) -> bool:
    return isinstance(error, OSError | TimeoutError) or _package(error) in _DRIVERS


def is_refusal(error: BaseException) -> bool:
    """Whether a constraint was violated, so that a retry would fail again."""
    import sqlite3  # which PostgreSQL rarely needs

    sqlstate = DriverError(error).sqlstate or ""
    return isinstance(error, sqlite3.IntegrityError) or sqlstate.startswith(_INTEGRITY)


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
