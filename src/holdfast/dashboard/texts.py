"""JSON values as the text that a form shows, and that it sends back without a change."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

# Controls, which terminals and browsers obey, and what turns the direction of a text. A field
# would also change a carriage return.
_UNTYPABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
)


def is_typable(text: str) -> bool:
    """Whether a field shows all of the text, and sends the same back."""
    return _UNTYPABLE.search(text) is None


def json_text(value: Any, *, indented: bool = False) -> str:
    """JSON with the digits of all numbers, and with escapes for what is not seen."""
    data = msgspec.json.encode(value)
    text = (msgspec.json.format(data, indent=2) if indented else data).decode()
    # Outside of texts, there are only line feeds.
    return _UNTYPABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
