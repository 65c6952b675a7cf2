"""Write a JSON value as the data of a form. `reading.read` reads it back as the same value."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from holdfast.dashboard.forms.places import ITEMS, JSON, KEY, NULL, OMIT, VALUE, WAY
from holdfast.dashboard.forms.shapes import SELECTS, Choices, Shape, Shapes
from holdfast.dashboard.limits import JOB_FORM_FIELDS_MAX, JOB_FORM_ITEMS_MAX, JOB_FORM_TRIES_MAX
from holdfast.dashboard.texts import is_typable, json_text

Data = dict[str, str]

MISSING: Final = object()


class TooManyFields(Exception):
    """A form with these values would have more than JOB_FORM_FIELDS_MAX fields."""


class _Misfit(Exception):
    """The value does not have this shape."""


class Writer:
    """Writes values. Where one doesn't fit its schema, it is written as JSON."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._tries_left = JOB_FORM_TRIES_MAX

    def write(self, schema: Any, name: str, value: Any, depth: int = 0) -> Data:
        data = self._write(schema, name, value, depth, strict=False)
        if len(data) > 2 * JOB_FORM_FIELDS_MAX:  # each field has a value and a way, or less
            raise TooManyFields
        return data

    def _write(self, schema: Any, name: str, value: Any, depth: int, *, strict: bool) -> Data:
        if value is MISSING:
            return {WAY + name: OMIT}
        choices = self._shapes.choices(schema, depth)
        if value is None and choices.is_nullable:
            return _null(choices, name)
        for is_strict in (True, False)[: 1 if strict else 2]:
            for number, shape in enumerate(choices.shapes):
                self._tries_left -= 1
                if self._tries_left < 0:
                    break
                try:
                    found = self._of_shape(shape, name, value, depth, strict=is_strict)
                except _Misfit:
                    continue
                return {WAY + name: str(number), **found}
        if strict:
            raise _Misfit
        return as_json(name, value)

    def _of_shape(self, shape: Shape, name: str, value: Any, depth: int, *, strict: bool) -> Data:
        match shape.kind:
            case "object":
                return self._object(shape, name, value, depth, strict=strict)
            case "list":
                return self._list(shape, name, value, depth, strict=strict)
            case "map":
                return self._map(shape, name, value, depth, strict=strict)
        return {VALUE + name: _text(shape, value)}

    def _object(self, shape: Shape, name: str, value: Any, depth: int, *, strict: bool) -> Data:
        if (
            type(value) is not dict
            or value.keys() - shape.properties.keys()
            or (shape.required & shape.properties.keys()) - value.keys()
        ):
            raise _Misfit
        data: Data = {}
        for member, schema in shape.properties.items():
            inner = value.get(member, MISSING)
            data |= self._write(schema, below(name, member), inner, depth + 1, strict=strict)
            _check_size(data)
        return data

    def _list(self, shape: Shape, name: str, value: Any, depth: int, *, strict: bool) -> Data:
        most = JOB_FORM_ITEMS_MAX if shape.items_max is None else shape.items_max
        if type(value) is not list or len(value) > min(most, JOB_FORM_ITEMS_MAX):
            raise _Misfit
        data = {ITEMS + name: " ".join(map(str, range(len(value))))}
        for number, item in enumerate(value):
            schema = shape.item(number)
            data |= self._write(schema, below(name, number), item, depth + 1, strict=strict)
            _check_size(data)
        return data

    def _map(self, shape: Shape, name: str, value: Any, depth: int, *, strict: bool) -> Data:
        if type(value) is not dict or len(value) > JOB_FORM_ITEMS_MAX:
            raise _Misfit
        data = {ITEMS + name: " ".join(map(str, range(len(value))))}
        for number, (key, item) in enumerate(value.items()):
            if not key or not is_typable(key) or "\n" in key:
                raise _Misfit
            inner = below(name, number)
            data[KEY + inner] = key
            data |= self._write(shape.item(number), inner, item, depth + 1, strict=strict)
            _check_size(data)
        return data


def below(name: str, step: str | int) -> str:
    """The name of a place in an object or a list. A browser changes no character in it."""
    return f"{name}/{quote(str(step), safe='', errors='surrogatepass')}"


def as_json(name: str, value: Any) -> Data:
    return {WAY + name: JSON, VALUE + name: json_text(value, indented=True)}


def _null(choices: Choices, name: str) -> Data:
    is_select = choices.is_simple and choices.shapes[0].kind in SELECTS
    return {WAY + name: NULL, **({VALUE + name: NULL} if is_select else {})}


def _check_size(data: Data) -> None:
    if len(data) > 2 * JOB_FORM_FIELDS_MAX:
        raise TooManyFields


def _text(shape: Shape, value: Any) -> str:
    """What the field of a single value contains."""
    kind = type(value)
    match shape.kind:
        case "text" if kind is str and is_typable(value):
            return str(value)
        case "integer" if kind is int:
            return json_text(value)
        case "number" if kind in (int, float):
            return json_text(value)
        case "boolean" if kind is bool:
            return json_text(value)
        case "enum":
            return _number_of(shape, value)
        case "json":
            return json_text(value, indented=True)
    raise _Misfit


def _number_of(shape: Shape, value: Any) -> str:
    wanted = json_text(value)
    for number, option in enumerate(shape.options):
        if json_text(option) == wanted:
            return str(number)
    raise _Misfit
