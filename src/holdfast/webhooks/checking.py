"""What subscriptions and events may be called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast import BadArguments
from holdfast.domain import codec
from holdfast.webhooks.limits import EVENT_TYPE_CHARS_MAX, EVENT_TYPES_MAX

# Nothing that could end a header's line.
_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9_.:/-]+")


def tenant(name: str | None) -> str | None:
    if name is not None:
        codec.check_name("tenant", name)
    return name


def event_types(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadArguments("event_types must be a list of strings, not a string")
    checked = tuple(names)
    if len(checked) > EVENT_TYPES_MAX:
        raise BadArguments(f"at most {EVENT_TYPES_MAX} event types fit a subscription")
    for name in checked:
        if len(name) > EVENT_TYPE_CHARS_MAX or not _EVENT_TYPE.fullmatch(name):
            raise BadArguments(
                "an event type has letters, digits and _ . : / - only, and at most"
                f" {EVENT_TYPE_CHARS_MAX} of them"
            )
    return checked
