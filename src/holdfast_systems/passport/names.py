"""Names and other one-line texts that every database can store and every log can show."""

from __future__ import annotations

import re

from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import NAME_CHARS_MAX

_NOT_ON_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_line(text: str, chars_max: int = NAME_CHARS_MAX) -> bool:
    return 1 <= len(text) <= chars_max and _NOT_ON_A_LINE.search(text) is None


def check_name(kind: str, name: str) -> None:
    if not is_line(name):
        raise ValidationError(f"the {kind} must have 1 to {NAME_CHARS_MAX} characters on one line")
