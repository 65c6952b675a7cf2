"""What can be wrong with a passport, and what errors of others are called here.

PassportError               retrying doesn't fix any of these
├── ValidationError         VALIDATION_ERROR: a document, an order or a value is invalid
│   └── NotFound            the tenant has no such thing
├── SnapshotNotReady        SNAPSHOT_NOT_READY: the snapshot is not sealed
├── RulesNotPublished       RULE_PKG_NOT_PUBLISHED
├── RuleTypeError           RULE_TYPE_ERROR: an expression mixes types
├── DocumentTooLarge        PAYLOAD_TOO_LARGE
├── SigningKeyMissing       SIGNING_KEY_MISSING
└── QrEncodeFailed          QR_ENCODE_FAILED

Errors with the codes in `RETRYABLE_CODES`, and all that are not named here, are retried.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from holdfast import BadArguments, JobError, LeaseLost, Permanent, StoreUnavailable, Transient


class PassportError(Permanent):
    pass


class ValidationError(PassportError):
    default_code = "VALIDATION_ERROR"


class NotFound(ValidationError):
    pass


class SnapshotNotReady(PassportError):
    default_code = "SNAPSHOT_NOT_READY"


class RulesNotPublished(PassportError):
    default_code = "RULE_PKG_NOT_PUBLISHED"


class RuleTypeError(PassportError):
    default_code = "RULE_TYPE_ERROR"


class DocumentTooLarge(PassportError):
    default_code = "PAYLOAD_TOO_LARGE"


class SigningKeyMissing(PassportError):
    default_code = "SIGNING_KEY_MISSING"


class QrEncodeFailed(PassportError):
    default_code = "QR_ENCODE_FAILED"


PERMANENT_CODES: Final = tuple(kind.default_code for kind in PassportError.__subclasses__())
DB_UNAVAILABLE: Final = "DB_UNAVAILABLE"
QUEUE_UNAVAILABLE: Final = "QUEUE_UNAVAILABLE"
RETRYABLE_CODES: Final = (DB_UNAVAILABLE, QUEUE_UNAVAILABLE)


# Classes of SQLSTATE: the connection is lost, the server is out of resources, or shutting down.
_DOWN: Final = ("08", "53", "57")
_CLOSED: Final = "InterfaceError"  # of asyncpg, for a connection that is closed


def in_own_terms(error: BaseException) -> BaseException:
    """Return the error as rows, logs and the API show it: with a code of this system and one line
    of text, without stack frames. An error that nobody expected keeps its cause, for the log."""
    if isinstance(error, JobError | LeaseLost) or not isinstance(error, Exception):
        return error.with_traceback(None)
    if _is_database_down(error):
        return Transient(_line(error), code=DB_UNAVAILABLE)
    if isinstance(error, BadArguments):
        return ValidationError(_line(error))
    code = getattr(error, "code", None)
    if code in PERMANENT_CODES:
        return Permanent(_line(error), code=code)
    if code in RETRYABLE_CODES:
        return Transient(_line(error), code=code)
    told = Transient(f"{type(error).__name__}: {_line(error)}", code=type(error).__name__)
    told.__cause__ = error
    return told


def _is_database_down(error: Exception) -> bool:
    """Drivers' own errors come from statements inside a transaction."""
    state = getattr(error, "sqlstate", None)
    return (
        isinstance(error, StoreUnavailable | sqlite3.OperationalError)
        or (isinstance(state, str) and state[:2] in _DOWN)
        or (type(error).__module__.startswith("asyncpg") and type(error).__name__ == _CLOSED)
    )


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
