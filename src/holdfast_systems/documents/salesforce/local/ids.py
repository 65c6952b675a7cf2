"""Record ids: fifteen characters that differ in case, and three more that tell the case."""

from __future__ import annotations

import re

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CASES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
INSTANCE = "Hf0"
COUNTER_CHARACTERS = 9
SHORT = re.compile(r"[0-9A-Za-z]{15}")
LONG = re.compile(r"[0-9A-Za-z]{15}[A-Za-z0-5]{3}")


def make_id(prefix: str, number: int) -> str:
    """Make the id of the n-th record of an object, with its case suffix."""
    counter = ""
    for _ in range(COUNTER_CHARACTERS):
        number, digit = divmod(number, len(DIGITS))
        counter = DIGITS[digit] + counter
    short = prefix + INSTANCE + counter
    return short + suffix_of(short)


def suffix_of(short: str) -> str:
    """Tell which of the fifteen characters are capital letters: five bits to a character."""
    chunks = (short[start : start + 5] for start in range(0, 15, 5))
    return "".join(
        CASES[sum(1 << place for place, letter in enumerate(chunk) if "A" <= letter <= "Z")]
        for chunk in chunks
    )


def full_id(text: str) -> str | None:
    """Give the 18 characters for either form, also if the long one lost its case; or None."""
    if SHORT.fullmatch(text):
        return text + suffix_of(text)
    if not LONG.fullmatch(text):
        return None
    suffix = text[15:].upper()
    bits = [CASES.index(letter) >> place & 1 for letter in suffix for place in range(5)]
    short = "".join(
        letter.upper() if bit else letter.lower()
        for letter, bit in zip(text[:15], bits, strict=True)
    )
    return short + suffix if suffix_of(short) == suffix else None
