"""What can go wrong, and what it means for the job.

400, 406, 413, 415 and other 4xx    GW_4XX, permanent
408, 425, 429                       GW_4XX, tried again, not before Retry-After
5xx, network, an answer without XML GW_5XX, tried again
no answer in time                   GW_TIMEOUT, tried again
files                               IO_ERROR, tried once more; a full disk is permanent
a mapping that is not allowed       UNKNOWN_MAPPING, permanent
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

_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class ConversionRefused(ValueError):
    """What was handed in can't be converted here; nothing was enqueued."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


def check_mapping(mapping: str, allowed: tuple[str, ...]) -> None:
    if mapping not in allowed:
        raise ConversionRefused(
            f"there is no mapping {one_line(mapping)!r}; there are: {', '.join(allowed)}",
            UNKNOWN_MAPPING,
        )


def of_status(status: int, headers: Mapping[str, str], detail: str) -> JobError:
    """What an answer comes to that is no success."""
    text = one_line(f"the gateway answered {status}{': ' if detail else ''}{detail}")
    if status < 500 and status not in _WORTH_ANOTHER_TRY:
        return Permanent(text, code=GW_4XX)
    code = GW_4XX if status < 500 else GW_5XX
    seconds = retry_after_seconds(headers)
    return Transient(text, code=code) if seconds is None else RetryAfter(seconds, text, code=code)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Read Retry-After. A date counts from the answer's own Date: no clocks are compared."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(min(int(value[:9]), RETRY_AFTER_SECONDS_MAX))
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("Date", ""))
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, wait.total_seconds()), RETRY_AFTER_SECONDS_MAX)


def of_file(error: OSError) -> JobError:
    text = one_line(f"a file could not be read or written: {error.strerror or error}")
    if error.errno in _DISK_FULL:
        return Permanent(text, code=IO_ERROR)
    return Transient(text, code=IO_ERROR)


def one_line(text: str) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(words) > ERROR_MESSAGE_CHARS_MAX:
        return words[: ERROR_MESSAGE_CHARS_MAX - 1] + "…"
    return words
