"""Errors of one kind told as one: their texts without what differs from job to job."""

from __future__ import annotations

import hashlib
import re
from typing import Final

VARYING: Final = "*"
FINGERPRINT_CHARS: Final = 12
_LINE_CHARS_MAX: Final = 2000
_SHAPE_CHARS_MAX: Final = 200

# One mark for all: the same id may be digits in one text and letters in the next. A quote that
# opens does not follow a letter, and none follows one that closes: "can't" opens nothing.
_VARIES: Final = re.compile(
    r"""
    (?<!\w)(?P<quote>['"`]) (?: \\. | [^\\] )*? (?P=quote)(?!\w)
    | \u201c [^\u201d]* \u201d | \xab [^\xbb]* \xbb
    | \b [a-zA-Z][\w+.-]* :// \S+
    # A path: a word, or none, and slashes with what follows each.
    | (?<![\w.~:/\\-]) [\w.~:-]* (?: [/\\]+ (?: [\w~@%+=-] | [.:](?=[\w.~@%+=/\\-]) )+ )+ [/\\]*
    # A word with a digit in it, with what belongs to numbers, times, ids and addresses.
    | (?<![\w.:+-]) [+-]? (?: [A-Za-z_] | [.:+-](?=\w) )* \d (?: \w | [.:+-](?=\w) | ,(?=\d) )* %?
    | \b [0-9a-fA-F]{8,} \b
    """,
    re.VERBOSE,
)
_SEVERAL: Final = re.compile(r"\*(?:,\s*\*)+")


def shape(text: str | None) -> str:
    """The first line, with ids, numbers, hex, quoted values, addresses and paths made alike."""
    lines = (text or "").strip().splitlines()
    line = lines[0][:_LINE_CHARS_MAX] if lines else ""
    alike = _SEVERAL.sub(VARYING, _VARIES.sub(VARYING, line))
    return " ".join(alike.split())[:_SHAPE_CHARS_MAX]


def fingerprint(name: str, code: str | None, text: str | None) -> str:
    """What jobs of one name have in common that ended for the same reason."""
    whole = "\0".join((name, code or "", shape(text)))
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:FINGERPRINT_CHARS]
