"""Amounts and statements, as an examination tells them."""

from __future__ import annotations

import re
import shlex
from typing import Final

from holdfast.domain.times import distance

QUERY_CHARS_MAX: Final = 200
HIDDEN: Final = "?"

# A text may be cut off inside of a literal: then all that follows belongs to it. Comments can be
# nested, so one ends where the last one ends, whatever stands between.
_NOT_TO_TELL = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*(?:.*\*/|.*) )
    | (?P<literal>
        \b[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)
        | (?:\b[bBxXnN]|\b[uU]&)?'(?:[^']|'')*(?:'|\Z)
        | \$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)
        | (?<![\w$."])\d[\w.]*
    )
    | (?P<name> "(?:[^"]|"")*(?:"|\Z) )
    """,
    re.VERBOSE | re.DOTALL,
)


def without_values(sql: str) -> str:
    """A statement on one line as it may be shown: literals and comments may hold secrets."""
    told = _NOT_TO_TELL.sub(_replaced, sql)
    flat = " ".join(told.split())
    return flat if len(flat) <= QUERY_CHARS_MAX else flat[: QUERY_CHARS_MAX - 1] + "…"


def _replaced(match: re.Match[str]) -> str:
    if match["comment"]:
        return " "
    return match["name"] or HIDDEN


def for_shell(word: str) -> str:
    return shlex.quote(word)


def for_sql(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def name_for_sql(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def at_least(number: int, most: int, noun: str) -> str:
    """A count that ends at `most`, because it is not worth more work."""
    return counted(number, noun) if number < most else f"{most:,} {noun}s or more"


def lasting(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return distance(seconds)


def size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def listed(names: list[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - most
    told = ", ".join(names[:most])
    return f"{told} and {rest:,} more" if rest > 0 else told
