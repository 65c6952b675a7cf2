"""Promise 12: no text makes one of our regular expressions slower than other texts of its length.

A pattern that backtracks takes minutes for a line of a few hundred kilobytes, and a worker that
logs that line does nothing else during that time.
"""

from __future__ import annotations

import re

import pytest

from holdfast.domain.fingerprint import _LINE_CHARS_MAX
from tests.support.patterns import CHARS, Found, every_pattern, slow_text

# What these are used on is cut before.
CHARS_MAX = {"holdfast.domain.fingerprint._VARIES": _LINE_CHARS_MAX}
PATTERNS = every_pattern()


@pytest.mark.parametrize("found", PATTERNS, ids=[found.where for found in PATTERNS])
def test_the_time_of_a_pattern_grows_no_faster_than_its_text(found: Found) -> None:
    bound = CHARS_MAX.get(found.where)
    assert slow_text(found, bound or CHARS, grows=bound is None) is None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"([a-z][a-z0-9+.-]*://[^\s:/?#]*):\S*@", "sub"),
        (r"\binvoice\s*(?:no\b\.?|#)\s*:?\s*(\S+)", "search"),
        (r"@\{(\w+)\.([^}]+)\}", "sub"),
    ],
)
def test_a_pattern_that_backtracks_is_found(pattern: str, method: str) -> None:
    assert slow_text(Found("here", re.compile(pattern), (method,))) is not None
