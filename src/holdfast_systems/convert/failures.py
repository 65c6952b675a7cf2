"""What can go wrong, and what it means for the job.

400, 406, 413, 415 and other 4xx    GW_4XX, permanent
408, 425, 429                       GW_4XX, retried, not before Retry-After
5xx, network, an answer without XML GW_5XX, retried
XML that is too large               GW_5XX, permanent, so the breaker doesn't count it
no answer in time                   GW_TIMEOUT, retried
files                               IO_ERROR, retried once; a full disk is permanent
a mapping that is not allowed       UNKNOWN_MAPPING, permanent

When a file is submitted: UNKNOWN_MAPPING, NOT_A_PDF, PDF_SIZE
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from holdfast import JobError, Permanent, RetryAfter, Transient
from holdfast_systems.convert.limits import ERROR_MESSAGE_CHARS_MAX, RETRY_AFTER_SECONDS_MAX

GW_4XX: Final = "GW_4XX"
GW_5XX: Final = "GW_5XX"
GW_TIMEOUT: Final = "GW_TIMEOUT"
IO_ERROR: Final = "IO_ERROR"
UNKNOWN_MAPPING: Final = "UNKNOWN_MAPPING"
NOT_A_PDF: Final = "NOT_A_PDF"
PDF_SIZE: Final = "PDF_SIZE"

_RETRYABLE: Final = frozenset({408, 425, 429})
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class ConversionRefused(ValueError):
    """The submission was rejected; nothing was enqueued."""

    def __init__(self, text: str, code: str, *, is_too_large: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.is_too_large = is_too_large


def check_mapping(mapping: str, allowed: tuple[str, ...]) -> None:
    if mapping not in allowed:
        raise ConversionRefused(
            f"no mapping {one_line(mapping)!r}; use one of: {', '.join(allowed)}",
            UNKNOWN_MAPPING,
        )


def of_status(status: int, headers: Mapping[str, str], detail: str) -> JobError:
    """Return the error for a status that is not a success."""
    text = one_line(f"the gateway answered {status}{': ' if detail else ''}{detail}")
    if status < 500 and status not in _RETRYABLE:
        return Permanent(text, code=GW_4XX)
    code = GW_4XX if status < 500 else GW_5XX
    seconds = retry_after_seconds(headers)
    return Transient(text, code=code) if seconds is None else RetryAfter(seconds, text, code=code)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Read Retry-After. A date counts from the response's own Date, not from a local clock."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(min(int(value[:9]), RETRY_AFTER_SECONDS_MAX))
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("Date", ""))
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, wait.total_seconds()), RETRY_AFTER_SECONDS_MAX)


def of_file(error: OSError) -> JobError:
    text = one_line(f"can't read or write a file: {error.strerror or error}")
    return (Permanent if error.errno in _DISK_FULL else Transient)(text, code=IO_ERROR)


def one_line(text: str) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(words) > ERROR_MESSAGE_CHARS_MAX:
        return words[: ERROR_MESSAGE_CHARS_MAX - 1] + "…"
    return words
