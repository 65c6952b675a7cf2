"""Record ids: 15 case-sensitive characters, and a suffix of three that encodes their case."""

from __future__ import annotations

import re

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CASES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
INSTANCE = "Hf0"
COUNTER_CHARACTERS = 9
SHORT = re.compile(r"[0-9A-Za-z]{15}")


def make_id(prefix: str, number: int) -> str:
    """Make the id of the n-th record, with its suffix."""
    counter = ""
    for _ in range(COUNTER_CHARACTERS):
        number, digit = divmod(number, len(DIGITS))
        counter = DIGITS[digit] + counter
    short = prefix + INSTANCE + counter
    return short + suffix_of(short)


def suffix_of(short: str) -> str:
    """Encode which of the 15 characters are capital letters, five to a character."""
    chunks = (short[start : start + 5] for start in range(0, 15, 5))
    return "".join(
        CASES[sum(1 << place for place, letter in enumerate(chunk) if "A" <= letter <= "Z")]
        for chunk in chunks
    )


def full_id(text: str) -> str | None:
    """Return all 18 characters for either form, or None if the text is not an id."""
    short = text[:15]
    if not SHORT.fullmatch(short):
        return None
    full = short + suffix_of(short)
    return full if text in (short, full) else None
