"""Contracts: what goes into a version of a definition, and what comes out.

They are in contracts/<definition>/<version>/{inputs,outputs}.schema.json, in this package and in a
folder of your own, and are read when the system starts. An invalid schema stops it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
import rfc8785

from holdfast import ConfigurationError
from holdfast_systems.compute.defaults import (
    BadSchema,
    Schema,
    check_fillable,
    fill,
    fill_default,
    schemas_with_default,
)
from holdfast_systems.compute.limits import (
    CONTRACT_ERRORS_MAX,
    ERROR_CHARS_MAX,
    INPUTS_DEPTH_MAX,
    SCHEMA_BYTES_MAX,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VERSION = re.compile(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}")


class ContractUnknown(Exception):
    """No contract for this version of this definition."""


class Flaw(NamedTuple):
    """What is wrong in a document, and where: `pointer` is a JSON Pointer."""

    text: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.text}" if self.pointer else self.text


class ContractBroken(Exception):
    """A document violates its contract; `flaws` says where and why."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__("; ".join(map(str, flaws)))
        self.flaws = flaws


def check_names(definition: str, version: str) -> None:
    if not _DEFINITION.fullmatch(definition) or not _VERSION.fullmatch(version):
        raise ContractUnknown(f"no contract {definition[:64]!r} @ {version[:20]!r}")


class Document:
    """A schema that documents are checked against."""

    def __init__(self, schema: Any) -> None:
        """Raise BadSchema if the schema or one of its defaults is invalid or can't be stored."""
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
            if problem := _unstorable({place: default}):
                raise BadSchema(f"{place}: the default can't be stored: {problem}")
            alone = _validator({"$defs": schema.get("$defs", {}), "allOf": [inner]})
            if not alone.is_valid(default):
                raise BadSchema(f"{place}: the default is not valid against its own schema")

    def check(self, value: Any) -> None:
        """Raise ContractBroken if the document violates the contract or can't be stored."""
        if problem := _unstorable(value):
            raise ContractBroken(Flaw(problem))
        broken = self._validator.iter_errors(value)
        found = (flaw for error in broken for flaw in _flaws(error))
        if flaws := [*islice(found, CONTRACT_ERRORS_MAX)]:
            raise ContractBroken(*flaws)

    def filled(self, value: Any) -> Any:
        """Return the document with its defaults, checked against the contract."""
        if problem := _unstorable(value):
            raise ContractBroken(Flaw(problem))
        try:
            whole = fill(self.schema, value)
        except BadSchema as error:
            raise ContractBroken(Flaw(str(error))) from None
        self.check(whole)
        return whole


@dataclass(frozen=True)
class Contract:
    inputs: Document
    outputs: Document


class Contracts:
    def __init__(self, known: Mapping[tuple[str, str], Contract]) -> None:
        self._known = known

    def find(self, definition: str, version: str) -> Contract:
        check_names(definition, version)
        if (definition, version) not in self._known:
            raise ContractUnknown(f"no contract {definition}@{version}")
        return self._known[definition, version]

    def all(self) -> list[tuple[tuple[str, str], Contract]]:
        """All of them, by definition and version."""
        return sorted(self._known.items(), key=lambda each: each[0])


def load_contracts(folder: Path | None = None) -> Contracts:
    """Read the contracts of this package, and those in a folder of your own."""
    known = _contracts_in(files(__package__).joinpath("contracts"))
    if folder is not None:
        own = _contracts_in(folder)
        if twice := sorted(known.keys() & own.keys()):
            definition, version = twice[0]
            raise ConfigurationError(
                f"{folder}: {definition}@{version} is already one of Holdfast's own contracts;"
                " use another name or version"
            )
        known |= own
    return Contracts(known)


def _contracts_in(folder: Traversable) -> dict[tuple[str, str], Contract]:
    known = {}
    for definition in _folders(folder):
        for version in _folders(definition):
            try:
                check_names(definition.name, version.name)
            except ContractUnknown:
                raise ConfigurationError(
                    f"{version}: rename the folder to <definition>/<version>, such as"
                    " house-fit/1.0.0"
                ) from None
            contract = Contract(_read(version, "inputs"), _read(version, "outputs"))
            known[definition.name, version.name] = contract
    return known


def _folders(folder: Traversable) -> list[Traversable]:
    try:
        found = [each for each in folder.iterdir() if each.is_dir() and each.name[0] != "."]
    except OSError as error:
        raise ConfigurationError(f"can't read contracts from {folder}: {error.strerror}") from None
    return sorted(found, key=lambda each: each.name)


def _read(folder: Traversable, which: str) -> Document:
    file = folder.joinpath(f"{which}.schema.json")
    try:
        with file.open("rb") as opened:
            data = opened.read(SCHEMA_BYTES_MAX + 1)
        if len(data) > SCHEMA_BYTES_MAX:
            raise BadSchema(f"larger than {SCHEMA_BYTES_MAX:,} bytes")
        return Document(msgspec.json.decode(data))
    except (BadSchema, OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"invalid contract {file}: {error}") from error


def _validator(schema: Schema) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$schema": _DRAFT, **schema}, offline=True)


def _unstorable(value: Any) -> str | None:
    """Say why a database or canonical JSON can't hold a value, or None."""
    if _depth(value, INPUTS_DEPTH_MAX) > INPUTS_DEPTH_MAX:
        return f"lists and objects are nested deeper than {INPUTS_DEPTH_MAX}"
    try:
        # Without escaped backslashes: one before the text "u0000" is not this character.
        if b"\\u0000" in rfc8785.dumps(value).replace(b"\\\\", b""):
            return "a text contains the character U+0000"
    except ValueError as error:
        return f"a value can't be stored: {error}"[:ERROR_CHARS_MAX]
    return None


def _depth(value: Any, most: int) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if most < 0:
        return 1
    return 1 + max((_depth(each, most - 1) for each in inner), default=0)


def _flaws(error: jsonschema_rs.ValidationError) -> Iterator[Flaw]:
    """One flaw for each field, also for those that are missing or not expected."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        yield _flaw("this field is required", *error.instance_path, kind.property)
    elif isinstance(
        kind,
        jsonschema_rs.ValidationErrorKind.AdditionalProperties
        | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties,
    ):
        for name in kind.unexpected:
            yield _flaw("the contract has no such field", *error.instance_path, name)
    else:
        yield _flaw(error.message, *error.instance_path)


def _flaw(text: str, *steps: str | int) -> Flaw:
    escaped = [str(step).replace("~", "~0").replace("/", "~1") for step in steps]
    pointer = "".join(f"/{step}" for step in escaped)
    return Flaw(text[:ERROR_CHARS_MAX], pointer[:ERROR_CHARS_MAX])
