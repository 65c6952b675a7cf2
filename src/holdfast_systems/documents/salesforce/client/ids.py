"""Convert record ids to job ids and back: every record is a job, whoever created it.

A record id has 15 letters and digits, which make a number of 90 bits; its long form adds a suffix
of three, derived from them. The job's id is a UUIDv8 of a mark and that number.
"""

from __future__ import annotations

import re
from typing import Final, TypeGuard
from uuid import UUID

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CASES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_SHORT_CHARS: Final = 15
_RECORD_ID: Final = re.compile(r"[0-9A-Za-z]{15}([A-Z0-5]{3})?")
_NUMBER_BITS: Final = 90
_MARK: Final = 0x5A1E5F0C  # tells these ids apart from other UUIDv8s
_VERSION: Final = 8
_VARIANT: Final = 0b10


def is_record_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _RECORD_ID.fullmatch(value) is not None


def job_id_of(record_id: str) -> UUID:
    """Convert a record id, short or long, to the job's id."""
    if not is_record_id(record_id):
        raise ValueError(f"{record_id!r} is not a Salesforce record id")
    number = 0
    for digit in record_id[:_SHORT_CHARS]:
        number = number * len(_DIGITS) + _VALUES[digit]
    payload = _MARK << _NUMBER_BITS | number
    high, middle, low = payload >> 74, payload >> 62 & 0xFFF, payload & (1 << 62) - 1
    return UUID(int=high << 80 | _VERSION << 76 | middle << 64 | _VARIANT << 62 | low)


def record_id_of(job_id: UUID) -> str | None:
    """Convert a job's id to the record id in its long form; None if the job is not a record."""
    value = job_id.int
    payload = value >> 80 << 74 | (value >> 64 & 0xFFF) << 62 | value & (1 << 62) - 1
    number = payload & (1 << _NUMBER_BITS) - 1
    if job_id.version != _VERSION or payload >> _NUMBER_BITS != _MARK:
        return None
    digits = []
    for _ in range(_SHORT_CHARS):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    if number:
        return None
    short = "".join(reversed(digits))
    return short + _suffix(short)


def _suffix(short: str) -> str:
    """Encode which of the 15 characters are capital letters, five to a character."""
    chunks = (short[start : start + 5] for start in range(0, _SHORT_CHARS, 5))
    return "".join(
        _CASES[sum(1 << place for place, letter in enumerate(chunk) if letter.isupper())]
        for chunk in chunks
    )
