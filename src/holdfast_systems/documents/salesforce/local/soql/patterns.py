"""Match the pattern of a LIKE in time bounded by pattern times text, whatever the pattern is."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from holdfast_systems.documents.salesforce.local.soql.parser import ESCAPED


class Wild(Enum):
    ONE = "_"
    MANY = "%"


Part: TypeAlias = str | Wild


def parts_of(escaped: str) -> list[Part]:
    """Split a pattern into small letters and wildcards; an escaped wildcard is a character."""
    parts: list[Part] = []
    characters = iter(escaped)
    for character in characters:
        if character == "\\":
            follower = next(characters, "\\")
            parts.extend(ESCAPED.get(follower, follower).lower())
        elif character in ("_", "%"):
            parts.append(Wild(character))
        else:
            parts.extend(character.lower())
    return parts


def matches(parts: list[Part], text: str) -> bool:
    """Match without regard to case.

    Only the last `%` is tried again: what earlier ones took can stay as it is.
    """
    text = text.lower()
    part, place = 0, 0
    many, resume = -1, 0
    while place < len(text):
        if part < len(parts) and parts[part] in (Wild.ONE, text[place]):
            part, place = part + 1, place + 1
        elif part < len(parts) and parts[part] is Wild.MANY:
            many, resume = part, place
            part += 1
        elif many >= 0:
            resume += 1
            part, place = many + 1, resume
        else:
            return False
    return all(rest is Wild.MANY for rest in parts[part:])
