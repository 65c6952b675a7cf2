"""SOQL from fixed text and values. Salesforce's REST API has no query parameters, so values become
literals in the text, and only here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.store_api import BadArguments

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
)


def bind(statement: str, values: Mapping[str, Any]) -> str:
    """Replace each `:name` in the statement with the literal for its value."""
    return _PARAMETER.sub(lambda match: literal(values[match[1]]), statement)


def literal(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f"'{value.translate(_ESCAPES)}'"
        case datetime():
            return _timestamp(value)
        case list() | tuple() if value:
            return f"({', '.join(literal(each) for each in value)})"
        case _:
            raise BadArguments(f"SOQL has no literal for {value!r}")


def _timestamp(value: datetime) -> str:
    """Write a time in whole seconds, which is Salesforce's resolution."""
    if value.tzinfo is None:
        raise BadArguments("a time in SOQL needs a time zone")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
