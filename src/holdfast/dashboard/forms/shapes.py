"""What a JSON Schema (draft 2020-12) allows at one place, as far as a form can show it.

Whatever a form can't show is of the kind `json`: the user types JSON, and the job's own check
decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from holdfast.dashboard.limits import (
    JOB_FORM_DEPTH_MAX,
    JOB_FORM_OPTIONS_MAX,
    JOB_FORM_SHAPES_MAX,
    JOB_FORM_STEPS_MAX,
)

Kind = Literal[
    "text", "integer", "number", "boolean", "enum", "object", "list", "map", "json", "null"
]
Schema = Mapping[str, Any]

SELECTS: Final = ("boolean", "enum")
SIMPLE: Final = ("text", "integer", "number", "json", *SELECTS)

_LABELS: Final[Mapping[Kind, str]] = {
    "text": "Text",
    "integer": "Whole number",
    "number": "Number",
    "boolean": "Yes or no",
    "enum": "One of a list",
    "object": "Fields",
    "list": "List",
    "map": "Names and values",
    "json": "JSON",
    "null": "null",
}
FORMATS: Final = {
    "date": "Date",
    "date-time": "Date and time",
    "time": "Time",
    "duration": "Duration",
    "uuid": "UUID",
    "decimal": "Decimal",
}
_NOTES: Final = frozenset({"title", "description", "default", "examples", "deprecated", "$defs"})
_POINTER: Final = re.compile(r"#(/.*)?", re.S)


class _NotShown(Exception):
    """The schema is beyond what a form shows."""


@dataclass(frozen=True)
class Shape:
    """One of the ways to fill in a place. `schema` has no references at its top."""

    kind: Kind
    schema: Schema

    @property
    def label(self) -> str:
        title = self.schema.get("title")
        if self.kind in ("object", "enum", "list") and isinstance(title, str):
            return title
        return FORMATS.get(self.format, "Text") if self.kind == "text" else _LABELS[self.kind]

    @property
    def format(self) -> str:
        found = self.schema.get("format")
        return found if isinstance(found, str) else ""

    @cached_property
    def options(self) -> tuple[Any, ...]:
        """The values of an enum, without null."""
        return tuple(each for each in _values(self.schema) if each is not None)

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        found = self.schema.get("properties")
        return found if isinstance(found, dict) else {}

    @cached_property
    def required(self) -> frozenset[str]:
        found = self.schema.get("required")
        names = found if isinstance(found, list) else []
        return frozenset(each for each in names if isinstance(each, str))

    @cached_property
    def prefix(self) -> list[Any]:
        found = self.schema.get("prefixItems")
        return found if isinstance(found, list) else []

    @property
    def items_min(self) -> int:
        return self.count("minItems") or 0

    @property
    def items_max(self) -> int | None:
        closed = self.prefix and self.schema.get("items") is False
        most = self.count("maxItems")
        return len(self.prefix) if closed and most is None else most

    def item(self, position: int) -> Any:
        """The schema of an item of a list, or of any value of a map."""
        if self.kind == "map":
            return self.schema.get("additionalProperties", True)
        if position < len(self.prefix):
            return self.prefix[position]
        return self.schema.get("items", True)

    def count(self, keyword: str) -> int | None:
        found = self.schema.get(keyword)
        return found if type(found) is int and found >= 0 else None


ANYTHING: Final = Shape("json", {})


@dataclass(frozen=True)
class Choices:
    """The shapes that one place allows, apart from null."""

    shapes: tuple[Shape, ...]
    is_nullable: bool

    @property
    def is_simple(self) -> bool:
        """Whether one control shows it, without a choice between shapes."""
        return len(self.shapes) == 1 and self.shapes[0].kind in SIMPLE


class Shapes:
    """Reads one schema, with its definitions."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def choices(self, schema: Any, depth: int = 0) -> Choices:
        """What `schema` allows. Deep inside the form, that is JSON."""
        shapes: list[Shape] = []
        try:
            if depth > JOB_FORM_DEPTH_MAX:
                raise _NotShown
            for shape in _Walk(self._root).shapes(schema, 0):
                if shape not in shapes:
                    shapes.append(shape)
                if len(shapes) > JOB_FORM_SHAPES_MAX:
                    raise _NotShown
        except _NotShown:
            shapes = [ANYTHING]
        if not shapes or any(each.kind == "json" for each in shapes):
            return Choices((ANYTHING,), False)
        others = tuple(each for each in shapes if each.kind != "null")
        return Choices(others, len(others) < len(shapes))


class _Walk:
    """One look at a schema, in a bounded number of steps: references may form a circle."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps_left = JOB_FORM_STEPS_MAX

    def shapes(self, schema: Any, depth: int) -> Iterator[Shape]:
        whole = self._resolved(schema, depth)
        for word in ("anyOf", "oneOf"):
            if isinstance(parts := whole.get(word), list):
                rest = {
                    name: value
                    for name, value in whole.items()
                    if name not in _NOTES and name not in (word, "discriminator")
                }
                for part in parts:
                    yield from self.shapes(_merged(rest, self._resolved(part, depth)), depth + 1)
                return
        for kind in _kinds(whole):
            yield Shape(kind, whole)
            if kind == "enum" and None in _values(whole):
                yield Shape("null", {})

    def _resolved(self, schema: Any, depth: int) -> Schema:
        """Put what a schema refers to in its place."""
        self._steps_left -= 1
        if self._steps_left < 0 or depth > JOB_FORM_DEPTH_MAX or schema is False:
            raise _NotShown
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise _NotShown
        parts = schema.get("allOf", [])
        if not isinstance(parts, list):
            raise _NotShown
        whole: Schema = {}
        if "$ref" in schema:
            whole = self._resolved(self._target(schema["$ref"]), depth + 1)
        for part in parts:
            whole = _merged(whole, self._resolved(part, depth + 1))
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        return _merged(whole, own)

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not (found := _POINTER.fullmatch(reference)):
            raise _NotShown
        target = self._root
        for step in unquote(found[1] or "").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise _NotShown
            target = target[name]
        return target


def _merged(one: Schema, other: Schema) -> Schema:
    """Both at once. The other's title and description win."""
    merged = dict(one)
    for name, value in other.items():
        known = merged.get(name, value)
        if name in _NOTES or known == value:
            merged[name] = value
        elif name == "required" and isinstance(value, list) and isinstance(known, list):
            merged[name] = [*known, *value]
        elif name == "properties" and isinstance(value, dict) and isinstance(known, dict):
            if known.keys() & value.keys():
                raise _NotShown
            merged[name] = known | value
        else:
            raise _NotShown
    return merged


def _kinds(schema: Schema) -> Iterator[Kind]:
    if "const" in schema or "enum" in schema:
        yield _kind_of_values(_values(schema))
        return
    types = schema.get("type")
    if types is None:
        is_object = "properties" in schema or "additionalProperties" in schema
        is_list = "items" in schema or "prefixItems" in schema
        types = "object" if is_object else "array" if is_list else None
    for each in types if isinstance(types, list) else [types]:
        yield _kind_of(each, schema)


def _kind_of(name: Any, schema: Schema) -> Kind:
    match name:
        case "string":
            return "text"
        case "integer" | "number" | "boolean" | "null":
            kind: Kind = name
            return kind
        case "array":
            return "list"
        case "object" if schema.get("properties"):
            return "object"
        case "object" if schema.get("additionalProperties") is False:
            return "object"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return "map"
    return "json"


def _values(schema: Schema) -> list[Any]:
    found = [schema["const"]] if "const" in schema else schema.get("enum")
    return found if isinstance(found, list) else []


def _kind_of_values(values: list[Any]) -> Kind:
    if values == [None]:
        return "null"
    try:
        msgspec.json.encode(values)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return "json"
    return "enum" if 0 < len(values) <= JOB_FORM_OPTIONS_MAX else "json"
