"""Defaults of a schema, written into a document where it leaves them out.

They are looked for under `properties` and `items`, and behind references to `#/$defs/...`. A
default anywhere else (in one branch of `anyOf`, say) could not be filled in without a guess, so a
schema that has one is refused, as is one whose own defaults it would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from holdfast_systems.compute.limits import INPUTS_DEPTH_MAX

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"
_BESIDE_REFERENCES = {"$ref", "default", "title", "description", "examples", "$comment"}
# What holds values, not schemas: a key named "default" in there is data.
_DATA = {"default", "const", "enum", "examples"}


class BadSchema(Exception):
    """A schema that can't be a contract."""


def fill(root: Schema, document: Any) -> Any:
    """Answer a copy with every default that is left out; filling it again changes nothing."""
    return _fill(root, root, deepcopy(document), 0)


def check_fillable(root: Schema) -> None:
    """Refuse a schema with defaults that would not be filled in, or that never end."""
    for place, schema in _all_schemas(root, ""):
        if "$ref" in schema:
            _check_reference(root, schema, place)
    fillable: set[int] = set()
    _gather(root, root, fillable, set())
    for place, schema in schemas_with_default(root):
        if id(schema) not in fillable:
            raise BadSchema(f"{place}: a default can't be filled in here")
        fill_default(root, schema)


def schemas_with_default(root: Schema) -> Iterator[tuple[str, Schema]]:
    return ((place, each) for place, each in _all_schemas(root, "") if "default" in each)


def fill_default(root: Schema, schema: Schema) -> Any:
    """Answer the schema's default as a document gets it: with the defaults inside of it."""
    return _fill(root, schema, deepcopy(schema["default"]), 0)


def _fill(root: Schema, schema: Any, value: Any, depth: int) -> Any:
    if depth > INPUTS_DEPTH_MAX:
        raise BadSchema(f"defaults and values are nested deeper than {INPUTS_DEPTH_MAX}")
    target = _target(root, schema)
    if isinstance(value, dict):
        for name, inner in target.get("properties", {}).items():
            if name not in value:
                missing = _default_of(root, inner)
                if not missing:
                    continue
                value[name] = deepcopy(missing[0])
            value[name] = _fill(root, inner, value[name], depth + 1)
    if isinstance(value, list) and isinstance(target.get("items"), dict):
        return [_fill(root, target["items"], entry, depth + 1) for entry in value]
    return value


def _default_of(root: Schema, schema: Any) -> list[Any]:
    """The default beside a reference wins over the one behind it."""
    for each in (schema, _target(root, schema)):
        if isinstance(each, dict) and "default" in each:
            return [each["default"]]
    return []


def _target(root: Schema, schema: Any) -> Schema:
    """Follow references; a schema that is `true` or `false` has nothing to fill."""
    for _ in range(INPUTS_DEPTH_MAX):
        if not isinstance(schema, dict):
            return {}
        if "$ref" not in schema:
            return schema
        schema = root["$defs"][schema["$ref"].removeprefix(_REFERENCE)]
    raise BadSchema("a reference leads back to itself")


def _check_reference(root: Schema, schema: Schema, place: str) -> None:
    written = schema["$ref"]
    name = written.removeprefix(_REFERENCE) if isinstance(written, str) else ""
    if written != _REFERENCE + name or name not in root.get("$defs", {}):
        raise BadSchema(f"{place}: a reference must lead to {_REFERENCE}... of the same schema")
    if others := schema.keys() - _BESIDE_REFERENCES:
        raise BadSchema(f"{place}: {min(others)} can't stand beside a reference")
    _target(root, schema)


def _gather(root: Schema, schema: Any, fillable: set[int], visited: set[int]) -> None:
    """Collect the schemas whose defaults `fill` writes: those of properties on its way."""
    target = _target(root, schema)
    if id(target) in visited:
        return
    visited.add(id(target))
    for inner in target.get("properties", {}).values():
        fillable |= {id(inner), id(_target(root, inner))}
        _gather(root, inner, fillable, visited)
    if isinstance(target.get("items"), dict):
        _gather(root, target["items"], fillable, visited)


def _all_schemas(value: Any, place: str) -> Iterator[tuple[str, Schema]]:
    """Every object in the schema that may be a schema itself."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _all_schemas(entry, f"{place}/{number}")
    if isinstance(value, dict):
        yield place or "/", value
        for key, entry in value.items():
            if key in ("properties", "$defs"):
                for name, inner in entry.items():
                    yield from _all_schemas(inner, f"{place}/{key}/{name}")
            elif key not in _DATA:
                yield from _all_schemas(entry, f"{place}/{key}")
