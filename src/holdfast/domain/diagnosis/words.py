"""How findings word amounts, names and statements."""

from __future__ import annotations

import re
from typing import Final

from holdfast.domain.times import distance

QUERY_CHARS_MAX: Final = 200
HIDDEN: Final = "?"

# A truncated text may end inside a literal: then the rest belongs to it. Comments can be nested, so
# a comment extends to the last end of one.
_MAY_BE_SECRET = re.compile(
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
    """Put a statement on one line, without literals and comments: they may hold secrets."""
    flat = " ".join(_MAY_BE_SECRET.sub(_replaced, sql).split())
    return flat if len(flat) <= QUERY_CHARS_MAX else flat[: QUERY_CHARS_MAX - 1] + "…"


def _replaced(match: re.Match[str]) -> str:
    return " " if match["comment"] else match["name"] or HIDDEN


def quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def at_least(number: int, most: int, noun: str) -> str:
    """A count that stops at `most`."""
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
    first = ", ".join(names[:most])
    return f"{first} and {rest:,} more" if rest > 0 else first
