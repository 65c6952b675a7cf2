"""Contracts: what goes into a version of a definition, and what comes out.

They lie in contracts/<definition>/<version>/{inputs,outputs}.schema.json, and are registered when
the system starts: a schema that can't be right stops it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from holdfast import ConfigurationError
from holdfast_systems.compute.defaults import (
    BadSchema,
    Schema,
    check_fillable,
    fill,
    fill_default,
    schemas_with_default,
)
from holdfast_systems.compute.fingerprint import canonical
from holdfast_systems.compute.limits import (
    CONTRACT_ERRORS_MAX,
    ERROR_CHARS_MAX,
    INPUTS_DEPTH_MAX,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VERSION = re.compile(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}")


class ContractUnknown(Exception):
    """There is no such version of such a definition."""


class ContractBroken(Exception):
    """A document does not keep its contract; `errors` says where and why."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


def check_names(definition: str, version: str) -> None:
    if not _DEFINITION.fullmatch(definition) or not _VERSION.fullmatch(version):
        raise ContractUnknown(f"there is no contract {definition[:64]!r} @ {version[:20]!r}")


class Document:
    """One schema, and what it says about documents."""

    def __init__(self, schema: Any) -> None:
        """Refuse a schema that is not one, or whose own defaults are not valid or can't be kept."""
        if not isinstance(schema, dict) or schema.get("$schema") != _DRAFT:
            raise BadSchema(f'a schema must say "$schema": "{_DRAFT}"')
        try:
            self._validator = _validator(schema)
            check_fillable(schema)
        except (jsonschema_rs.ValidationError, ValueError, TypeError, AttributeError) as error:
            raise BadSchema(f"not a valid schema: {error}") from error
        self.schema = schema
        for place, inner in schemas_with_default(schema):
            default = fill_default(schema, inner)
            if errors := [*_unstorable({place: default})]:
                raise BadSchema(f"{place}: the default can't be stored: {errors[0]}")
            alone = _validator({"$defs": schema.get("$defs", {}), "allOf": [inner]})
            if not alone.is_valid(default):
                raise BadSchema(f"{place}: the default is not valid by its own schema")

    def check(self, value: Any) -> None:
        """Raise ContractBroken if the document breaks the contract or can't be stored."""
        if errors := [*_unstorable(value)]:
            raise ContractBroken(errors)
        broken = self._validator.iter_errors(value)
        if errors := [_told(error) for error in islice(broken, CONTRACT_ERRORS_MAX)]:
            raise ContractBroken(errors)

    def filled(self, value: Any) -> Any:
        """Answer the document with its defaults, if that keeps the contract."""
        if errors := [*_unstorable(value)]:
            raise ContractBroken(errors)
        try:
            whole = fill(self.schema, value)
        except BadSchema as error:
            raise ContractBroken([str(error)]) from None
        self.check(whole)
        return whole


@dataclass(frozen=True)
class Contract:
    definition: str
    version: str
    inputs: Document
    outputs: Document


class Contracts:
    def __init__(self, known: Mapping[tuple[str, str], Contract]) -> None:
        self._known = known

    def find(self, definition: str, version: str) -> Contract:
        check_names(definition, version)
        if (definition, version) not in self._known:
            raise ContractUnknown(f"there is no contract {definition}@{version}")
        return self._known[definition, version]


def load_contracts(folder: Traversable | None = None) -> Contracts:
    """Register every contract of a folder; those of this package by default."""
    folder = folder or files(__package__).joinpath("contracts")
    known = {}
    for definition in _folders(folder):
        for version in _folders(definition):
            check_names(definition.name, version.name)
            known[definition.name, version.name] = Contract(
                definition.name,
                version.name,
                inputs=_read(version, "inputs"),
                outputs=_read(version, "outputs"),
            )
    return Contracts(known)


def _folders(folder: Traversable) -> list[Traversable]:
    return sorted((each for each in folder.iterdir() if each.is_dir()), key=lambda each: each.name)


def _read(folder: Traversable, which: str) -> Document:
    file = folder.joinpath(f"{which}.schema.json")
    try:
        return Document(msgspec.json.decode(file.read_bytes()))
    except (BadSchema, OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"the contract {file} can't be used: {error}") from error


def _validator(schema: Schema) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$schema": _DRAFT, **schema}, offline=True)


def _unstorable(value: Any) -> Iterator[str]:
    """Tell what a database or the canonical form could not hold."""
    if _depth(value, INPUTS_DEPTH_MAX) > INPUTS_DEPTH_MAX:
        yield f"lists and objects are nested deeper than {INPUTS_DEPTH_MAX}"
        return
    try:
        # An escaped backslash before a "u0000" of the text itself is no such character.
        if b"\\u0000" in canonical(value).replace(b"\\\\", b""):
            yield "a text contains the character U+0000"
    except ValueError as error:
        yield f"a value can't be stored: {error}"[:ERROR_CHARS_MAX]


def _depth(value: Any, most: int) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if most < 0:
        return 1
    return 1 + max((_depth(each, most - 1) for each in inner), default=0)


def _told(error: jsonschema_rs.ValidationError) -> str:
    place = "/".join(str(step) for step in error.instance_path)
    return f"/{place}: {error.message}"[:ERROR_CHARS_MAX]
