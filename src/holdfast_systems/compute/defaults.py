"""Fill in the defaults of a schema where a document leaves them out.

Defaults can be under `properties` and `items`, and behind references to `#/$defs/...`. A default
anywhere else (in one branch of `anyOf`, for example) would take a guess, so a schema that has one
is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

from holdfast_systems.compute.limits import INPUTS_DEPTH_MAX

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"
_BESIDE_REFERENCES = {"$ref", "default", "title", "description", "examples", "$comment"}
# Below the root, the first two change what `#/$defs/...` refers to. The target of the third depends
# on the path to it.
_ELSEWHERE = ("$id", "$schema", "$dynamicRef")

# Keywords whose values are schemas. Everything else is data.
_SCHEMAS_BY_NAME = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
}  # fmt: skip
_LISTS_OF_SCHEMAS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SCHEMAS = {
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip


class BadSchema(Exception):
    """A schema that can't be used as a contract."""


def fill(root: Schema, document: Any) -> Any:
    """Return a copy with every default filled in. Filling it again changes nothing."""
    return _fill(root, root, deepcopy(document), 0)


def check_fillable(root: Schema) -> None:
    """Raise BadSchema if some defaults would not be filled in, or would recurse endlessly."""
    for place, schema in _all_schemas(root, ""):
        _check_references(root, schema, place)
    if "default" in root:
        raise _unfillable("")
    filled: set[str] = set()
    unfilled: set[str] = set()
    _check_filled(root, root, "", filled, unfilled)
    for name, schema in root.get("$defs", {}).items():
        if name not in filled:
            _check_unfilled(root, schema, f"/$defs/{name}", unfilled)
    for _, schema in schemas_with_default(root):
        fill_default(root, schema)


def schemas_with_default(root: Schema) -> Iterator[tuple[str, Schema]]:
    return ((place, each) for place, each in _all_schemas(root, "") if "default" in each)


def fill_default(root: Schema, schema: Schema) -> Any:
    """Return the schema's default with its nested defaults, as a document gets it."""
    return _fill(root, schema, deepcopy(schema["default"]), 0)


def _fill(root: Schema, schema: Any, value: Any, depth: int) -> Any:
    if depth > INPUTS_DEPTH_MAX:
        raise BadSchema(f"defaults and values are nested deeper than {INPUTS_DEPTH_MAX}")
    target = _chain(root, schema)[-1]
    if isinstance(value, dict):
        for name, inner in target.get("properties", {}).items():
            if name not in value:
                # A default beside a reference takes precedence over the one behind it.
                defaults = [each["default"] for each in _chain(root, inner) if "default" in each]
                if not defaults:
                    continue
                value[name] = deepcopy(defaults[0])
            value[name] = _fill(root, inner, value[name], depth + 1)
    if isinstance(value, list) and isinstance(target.get("items"), dict):
        first = len(target.get("prefixItems", ()))
        rest = [_fill(root, target["items"], entry, depth + 1) for entry in value[first:]]
        return value[:first] + rest
    return value


def _chain(root: Schema, schema: Any) -> list[Schema]:
    """Return the schema and the schemas that its references lead to; `true` and `false` as {}."""
    found: list[Schema] = []
    while isinstance(schema, dict):
        found.append(schema)
        if "$ref" not in schema:
            return found
        if len(found) > INPUTS_DEPTH_MAX:
            raise BadSchema("a reference leads back to itself")
        name = _name_of(root, schema["$ref"])
        schema = root["$defs"][name]
    return [*found, {}]


def _name_of(root: Schema, reference: str) -> str:
    """Find the name in `$defs` (RFC 6901): decode the percent signs first, then the pointer."""
    pointer = unquote(reference)
    name = pointer.removeprefix(_REFERENCE)
    known = name.replace("~1", "/").replace("~0", "~")
    if pointer != _REFERENCE + name or "/" in name or known not in root.get("$defs", {}):
        raise BadSchema(f"{reference}: a reference must lead to {_REFERENCE}... in the same schema")
    return known


def _check_references(root: Schema, schema: Schema, place: str) -> None:
    for keyword in _ELSEWHERE:
        if keyword in schema and (place or keyword == "$dynamicRef"):
            raise BadSchema(f"{place or '/'}: {keyword} is not allowed here")
    if "$ref" not in schema:
        return
    if others := schema.keys() - _BESIDE_REFERENCES:
        raise BadSchema(f"{place}: {min(others)} is not allowed beside a reference")
    _chain(root, schema)


def _check_filled(
    root: Schema, schema: Any, place: str, filled: set[str], unfilled: set[str]
) -> None:
    """Follow the path of `fill`; nothing off this path can have defaults."""
    for each in _chain(root, schema):
        if "$ref" in each:
            name = _name_of(root, each["$ref"])
            if name in filled:
                return
            filled.add(name)
            place = f"/$defs/{name}"
            continue
        for keyword, path, inner in _inner_schemas(each):
            if keyword == "items" and "default" in inner:
                raise _unfillable(place + path)
            if keyword in ("properties", "items"):
                _check_filled(root, inner, place + path, filled, unfilled)
            elif each is not root or keyword != "$defs":
                _check_unfilled(root, inner, place + path, unfilled)


def _check_unfilled(root: Schema, schema: Schema, place: str, unfilled: set[str]) -> None:
    """Reject every default in here, and behind the references in here."""
    if "default" in schema:
        raise _unfillable(place)
    if "$ref" in schema:
        name = _name_of(root, schema["$ref"])
        if name not in unfilled:
            unfilled.add(name)
            _check_unfilled(root, root["$defs"][name], f"/$defs/{name}", unfilled)
    for _, path, inner in _inner_schemas(schema):
        _check_unfilled(root, inner, place + path, unfilled)


def _unfillable(place: str) -> BadSchema:
    return BadSchema(f"{place or '/'}: a default can't be filled in here")


def _all_schemas(schema: Schema, place: str) -> Iterator[tuple[str, Schema]]:
    """Yield the schema and all schemas in it, with their places."""
    yield place, schema
    for _, path, inner in _inner_schemas(schema):
        yield from _all_schemas(inner, place + path)


def _inner_schemas(schema: Any) -> Iterator[tuple[str, str, Schema]]:
    """Yield the keyword, the path and the schema of each schema directly in this one."""
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        if keyword in _SCHEMAS:
            found = [("", value)]
        elif keyword in _SCHEMAS_BY_NAME:
            found = [(f"/{name}", each) for name, each in value.items()]
        elif keyword in _LISTS_OF_SCHEMAS:
            found = [(f"/{number}", each) for number, each in enumerate(value)]
        else:
            continue
        for path, inner in found:
            if isinstance(inner, dict):
                yield keyword, f"/{keyword}{path}", inner
