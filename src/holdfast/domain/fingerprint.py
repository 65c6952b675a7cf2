"""Group errors of one kind: reduce their texts to what does not differ from job to job.

The tables of error groups keep fingerprints: whoever changes how one is made empties them in a
migration, so that they are counted again from the history.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

VARYING: Final = "*"
FINGERPRINT_CHARS: Final = 12
_LINE_CHARS_MAX: Final = 2000
_SHAPE_CHARS_MAX: Final = 200

# One mark for all, because an id may be digits in one text and letters in the next. An opening
# quote does not follow a letter, nor does a letter follow a closing one: "can't" opens nothing.
_VARIES: Final = re.compile(
    r"""
    (?<!\w)(?P<quote>['"`]) (?: \\. | [^\\] )*? (?P=quote)(?!\w)
    | \u201c [^\u201d]* \u201d | \xab [^\xbb]* \xbb
    | \b [a-zA-Z][\w+.-]* :// \S+
    # A path: an optional word, then slashes and what follows each.
    | (?<![\w.~:/\\-]) [\w.~:-]* (?: [/\\]+ (?: [\w~@%+=-] | [.:](?=[\w.~@%+=/\\-]) )+ )+ [/\\]*
    # A word with a digit, as in numbers, times, ids and addresses.
    | (?<![\w.:+-]) [+-]? (?: [A-Za-z_] | [.:+-](?=\w) )* \d (?: \w | [.:+-](?=\w) | ,(?=\d) )* %?
    | \b [0-9a-fA-F]{8,} \b
    """,
    re.VERBOSE,
)
_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{FINGERPRINT_CHARS}}}")
_SEVERAL: Final = re.compile(r"\*(?:,\s*\*)+")


def shape(text: str | None) -> str:
    """The first line, with ids, numbers, quoted values, addresses and paths replaced by `*`."""
    lines = (text or "").strip().splitlines()
    line = lines[0][:_LINE_CHARS_MAX] if lines else ""
    alike = _SEVERAL.sub(VARYING, _VARIES.sub(VARYING, line))
    return " ".join(alike.split())[:_SHAPE_CHARS_MAX]


def fingerprint(name: str, code: str | None, text: str | None) -> str:
    """The same for all jobs of one name that ended for the same reason."""
    whole = "\0".join((name, code or "", shape(text)))
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:FINGERPRINT_CHARS]


def is_fingerprint(text: str) -> bool:
    return _FINGERPRINT.fullmatch(text) is not None
