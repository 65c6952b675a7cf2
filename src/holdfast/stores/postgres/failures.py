"""What the driver's errors mean, by SQLSTATE class."""

from __future__ import annotations

from holdfast.domain.errors import (
    ConfigurationError,
    HoldfastError,
    SchemaMismatch,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.domain.secrets import masked

SUMMARY_CHARS_MAX = 400

# A deadlock or a serialization failure: a retry is likely to succeed.
_CONFLICTS = frozenset({"40P01", "40001"})
_PREPARED_STATEMENT_LOST = frozenset({"26000", "42P05"})
_TOO_MANY_CONNECTIONS = "53300"
_NO_SCHEMA = frozenset({"42P01", "42703", "42883", "3F000"})
NO_PRIVILEGE = "42501"
_NOT_ALLOWED = frozenset({"28", "3D"})
_PASSING = frozenset({"08", "25", "40", "53", "55", "57", "58", "0A"})


def is_conflict(error: BaseException) -> bool:
    return sqlstate(error) in _CONFLICTS


def sqlstate(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_driver_error(error: BaseException) -> bool:
    return (
        isinstance(error, (OSError, TimeoutError, UnicodeError, OverflowError))
        or type(error).__module__.partition(".")[0] == "asyncpg"
    )


def translate(error: Exception, address: str) -> HoldfastError:
    """Translate an error of the driver; the address names the host, never a password."""
    code = sqlstate(error)
    # Leave out the server's details: they quote rows, and messages go to logs.
    message = error.args[0] if code and error.args else error
    summary = masked(f"{type(error).__name__}: {message}", SUMMARY_CHARS_MAX).removesuffix(": ")
    if code in _PREPARED_STATEMENT_LOST:
        return ConfigurationError(
            f"PostgreSQL at {address} loses prepared statements: it is behind a pooler in"
            " transaction mode. Remove statement_cache_size from the URL; your own connections"
            " must not prepare statements (asyncpg: statement_cache_size=0)."
        )
    if code in _NO_SCHEMA:
        return SchemaMismatch(
            f"the schema of the database {address} doesn't fit this code ({summary}); run: holdfast"
            " migrate"
        )
    if code[:2] in _NOT_ALLOWED:
        return ConfigurationError(f"PostgreSQL at {address} rejected the login: {summary}")
    if code == NO_PRIVILEGE:
        return ConfigurationError(
            f"PostgreSQL at {address} doesn't allow this login to do that: {summary}"
        )
    if code == _TOO_MANY_CONNECTIONS:
        return StoreUnavailable(
            f"PostgreSQL at {address} has no free connection: {summary}. Lower pool_size or the"
            " number of processes, raise the limit (max_connections, or the CONNECTION LIMIT of the"
            " role or database), or connect through PgBouncer",
            connections_used_up=True,
        )
    if not code or code[:2] in _PASSING:
        if isinstance(error, (UnicodeEncodeError, OverflowError)):
            return StoreRefused(f"PostgreSQL can't store a value: {summary}")
        return StoreUnavailable(f"PostgreSQL at {address} is not available: {summary}")
    return StoreRefused(f"PostgreSQL at {address} refused the statement: {summary}")
