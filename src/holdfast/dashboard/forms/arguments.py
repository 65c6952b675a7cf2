"""The value that a form was filled in with, as exact JSON text. Numbers keep their digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from holdfast.api.exact_json import BadJson, parse
from holdfast.dashboard.forms.places import NULL, OMIT, Place
from holdfast.dashboard.forms.shapes import FORMATS, Shape
from holdfast.dashboard.texts import json_text

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_BOUNDS: Final = (
    ("minimum", "at least", Decimal.__ge__),
    ("maximum", "at most", Decimal.__le__),
    ("exclusiveMinimum", "more than", Decimal.__gt__),
    ("exclusiveMaximum", "less than", Decimal.__lt__),
)
_EXPONENT_CHARS_MAX: Final = 6  # a Decimal takes no more than 18, and a double less than 4


def json_of(place: Place) -> str | None:
    """The JSON text of a place; None if it is left out. Errors are added to their places."""
    if place.way == OMIT:
        return None
    if place.way == NULL:
        return "null"
    shape = place.shape
    if shape is None or shape.kind == "json":
        return _typed(place)
    match shape.kind:
        case "object":
            return _braced(f"{json_text(each.member)}:{text}" for each, text in _parts(place))
        case "map":
            _check_keys(place)
            return _braced(f"{json_text(each.key)}:{text}" for each, text in _parts(place))
        case "list":
            _check_length(place, len(place.children), shape, "Items")
            return f"[{','.join(text for _, text in _parts(place))}]"
        case "integer" | "number":
            return _number(place, shape)
        case "boolean":
            return _boolean(place)
        case "enum":
            return _option(place, shape)
    return _text(place, shape)


def _parts(place: Place) -> Iterator[tuple[Place, str]]:
    for child in place.children:
        text = json_of(child)
        if text is not None:
            yield child, text


def _braced(parts: Iterator[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _typed(place: Place) -> str:
    """Check JSON that was typed: anything else would become part of what is around it."""
    try:
        parse(place.text.encode("utf-8", "surrogatepass"))
    except BadJson as error:
        if not place.text.strip():
            place.errors.append("enter a JSON value")
        else:
            where = f" (at {error.pointer})" if error.pointer else ""
            place.errors.append(f"{error}{where}")
        return "null"
    return place.text


def _number(place: Place, shape: Shape) -> str:
    is_whole = shape.kind == "integer"
    token = place.text.strip()
    if not token:
        place.errors.append("enter a number")
    elif not _NUMBER.fullmatch(token):
        place.errors.append("this is not a number; write it like -12.5 or 1e6")
    elif is_whole and not _INTEGER.fullmatch(token):
        place.errors.append("this is not a whole number")
    else:
        _check_range(place, token, shape)
        return token
    return "null"


def _check_range(place: Place, token: str, shape: Shape) -> None:
    if len(token.lower().partition("e")[2]) > _EXPONENT_CHARS_MAX:
        return  # out of range for JSON too, which says so
    number = Decimal(token)
    for keyword, words, holds in _BOUNDS:
        bound = shape.schema.get(keyword)
        if type(bound) in (int, float) and not holds(number, Decimal(json_text(bound))):
            place.errors.append(f"must be {words} {json_text(bound)}")


def _boolean(place: Place) -> str:
    if place.text in ("true", "false"):
        return place.text
    if not place.is_checkbox:
        place.errors.append("choose yes or no")
    return "false"


def _option(place: Place, shape: Shape) -> str:
    if place.is_constant:
        return json_text(shape.options[0])
    known = place.text.isdecimal() and len(place.text) < _EXPONENT_CHARS_MAX
    if known and int(place.text) < len(shape.options):
        return json_text(shape.options[int(place.text)])
    place.errors.append("choose one")
    return "null"


def _text(place: Place, shape: Shape) -> str:
    if not place.text and shape.format in FORMATS:
        place.errors.append("enter a value")
    _check_length(place, len(place.text), shape, "Length")
    return json_text(place.text)


def _check_length(place: Place, length: int, shape: Shape, noun: str) -> None:
    what = "items" if noun == "Items" else "characters"
    least, most = shape.count(f"min{noun}"), shape.count(f"max{noun}")
    if least is not None and length < least:
        place.errors.append(f"needs at least {least:,} {what}")
    if most is not None and length > most:
        place.errors.append(f"has {length:,} {what}; the maximum is {most:,}")


def _check_keys(place: Place) -> None:
    seen: set[str | None] = set()
    for child in place.children:
        if not child.key:
            child.errors.append("enter a name")
        elif child.key in seen:
            child.errors.append("this name appears twice")
        seen.add(child.key)
