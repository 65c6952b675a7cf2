"""What a form says about a field beside its label, and which control it uses."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

from holdfast.dashboard.forms.places import FIRST, JSON, NULL, Place
from holdfast.dashboard.forms.shapes import Shape
from holdfast.dashboard.texts import json_text

_LINE_CHARS_MAX: Final = 100  # of a text that is typed in one line
_DEFAULT_CHARS_MAX: Final = 60
_ROWS_MAX: Final = 24
_FORMATS: Final = {
    "date": "2026-11-18",
    "date-time": "2026-11-18T20:15:00Z",
    "time": "20:15:00",
    "duration": "PT1H30M",
    "uuid": "01a1eb4e-7c00-7000-8000-00000000003c",
    "decimal": "12.50",
}


def control(place: Place) -> str:
    """What to type in: line, lines, date, number, json, select, checkbox or constant."""
    shape = place.seen
    if place.way == JSON or shape.kind == "json":
        return "json"
    if place.is_constant:
        return "constant"
    if place.is_select:
        return "checkbox" if place.is_checkbox else "select"
    if shape.kind in ("integer", "number") or shape.format == "decimal":
        return "number"
    if shape.format == "date" and _is_date(place.text):
        return "date"
    return "line" if _is_line(shape) and "\n" not in place.text else "lines"


def hints(place: Place) -> list[str]:
    """Short remarks: what form the value has, its bounds, and its default."""
    shape = place.seen
    found = [*_form(shape), *_bounds(shape)] if shape in place.choices.shapes else []
    is_shown = place.is_select or _default_in_field(place) or _is_empty(place.default)
    if place.is_optional and place.has_default and not is_shown:
        found.append(f"default: {_short(place.default)}")
    return found


def empties(place: Place) -> list[tuple[str, str]]:
    """What an empty field may mean, without what is pointless: what comes to the same as leaving
    it out, and an empty text where a date is wanted. What is chosen already stays."""
    pointless = {FIRST} if place.seen.format else set()
    if place.is_optional and place.has_default and _is_empty(place.default):
        pointless.add(NULL if place.default is None else FIRST)
    return [each for each in place.empties if each[0] not in pointless - {place.when_empty}]


def placeholder(place: Place) -> str:
    """An example, or the default of what is left out."""
    if _default_in_field(place):
        return _short(place.default).strip('"')
    return _FORMATS.get(place.seen.format, "")


def options(place: Place) -> list[tuple[str, str]]:
    """What a select offers: the text that is sent, and the one that is shown."""
    shape = place.choices.shapes[0]
    omitted = f"Default: {_option(place.default)}" if place.has_default else "Left out"
    found = [("", omitted if place.is_optional else "Choose…")]
    found += [("null", "null")] if place.choices.is_nullable else []
    if shape.kind == "boolean":
        return [*found, ("true", "yes"), ("false", "no")]
    shown = [_option(each) for each in shape.options]
    return [*found, *((str(number), text) for number, text in enumerate(shown))]


def _is_empty(default: Any) -> bool:
    return default is None or default in ("", {}, [])


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else _short(value)


def _default_in_field(place: Place) -> bool:
    """Whether the default is shown in the empty field."""
    is_field = place.choices.is_simple and not place.is_select and place.way != JSON
    is_known = place.is_optional and place.has_default
    return is_known and is_field and type(place.default) in (int, float, str)


def _form(shape: Shape) -> list[str]:
    if shape.kind == "text" and shape.schema.get("contentEncoding") == "base64":
        return ["base64"]
    if shape.kind == "integer":
        return ["whole number"]
    if shape.kind == "json":
        return ["any JSON value"]
    example = _FORMATS.get(shape.format) if shape.kind == "text" else None
    if shape.format == "date":
        return []
    return [f"for example {example}"] if example else []


def _bounds(shape: Shape) -> list[str]:
    schema, found = shape.schema, []
    for word, keyword in (
        ("at least", "minimum"),
        ("more than", "exclusiveMinimum"),
        ("at most", "maximum"),
        ("less than", "exclusiveMaximum"),
    ):
        if shape.kind in ("integer", "number") and type(schema.get(keyword)) in (int, float):
            found.append(f"{word} {json_text(schema[keyword])}")
    noun = {"text": ("Length", "characters"), "list": ("Items", "items")}.get(shape.kind)
    if noun is not None:
        least, most = shape.count(f"min{noun[0]}"), shape.count(f"max{noun[0]}")
        if least is not None and least == most:
            return [*found, f"exactly {least:,} {noun[1]}"]
        found += [f"at least {least:,} {noun[1]}"] if least else []
        found += [f"at most {most:,} {noun[1]}"] if most is not None else []
    return found


def _short(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= _DEFAULT_CHARS_MAX else f"{text[: _DEFAULT_CHARS_MAX - 1]}…"


def _is_line(shape: Shape) -> bool:
    most = shape.count("maxLength")
    return bool(shape.format) or "pattern" in shape.schema or (most or 1000) <= _LINE_CHARS_MAX


def _is_date(text: str) -> bool:
    """Whether a date field of a browser can show it."""
    try:
        return not text or date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def rows(place: Place) -> int:
    """How many lines a field shows at first."""
    least = 3 if control(place) == "json" else 1
    return max(least, min(_ROWS_MAX, place.text.count("\n") + 1))


FILTERS: Final = {
    "control": control,
    "hints": hints,
    "placeholder": placeholder,
    "select_options": options,
    "rows": rows,
    "empties": empties,
}
