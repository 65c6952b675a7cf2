"""Facts, and how to read them from a CSV document."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from uuid import UUID

import msgspec

from holdfast_systems.passport.canonical import canonical, decimal_text, id_of, sha256
from holdfast_systems.passport.errors import DocumentTooLarge, ValidationError
from holdfast_systems.passport.limits import (
    CELL_CHARS_MAX,
    DOCUMENT_BYTES_MAX,
    FACTS_MAX,
    NUMBER_DIGITS_MAX,
    NUMBER_PLACES_MAX,
)
from holdfast_systems.passport.names import is_line
from holdfast_systems.passport.schema import Cell, Field, Kind, Schema

_NUMBER = re.compile(rf"-?[0-9]{{1,{NUMBER_DIGITS_MAX}}}(\.[0-9]{{1,{NUMBER_PLACES_MAX}}})?")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fact_type: str
    fact_key: str
    schema_version: str
    payload: dict[str, Cell]

    @property
    def leaf(self) -> bytes:
        """The bytes that are hashed into the proof."""
        return canonical(msgspec.to_builtins(self))

    @property
    def payload_hash(self) -> str:
        return sha256(canonical(self.payload)).hex()

    def id(self, tenant: str) -> UUID:
        key = (self.fact_type, self.fact_key, self.schema_version, self.payload_hash)
        return id_of("fact", tenant, *key)


def in_order(facts: Sequence[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: (fact.fact_type, fact.fact_key))


def check_size(content: bytes) -> None:
    if len(content) > DOCUMENT_BYTES_MAX:
        raise DocumentTooLarge(
            f"the document has {len(content)} bytes; the limit is {DOCUMENT_BYTES_MAX}"
        )


def parse_document(content: bytes, schema: Schema) -> list[Fact]:
    """Read all facts, or reject the document at its first error."""
    check_size(content)
    rows = _rows(content)
    columns = _columns(next(rows, (0, []))[1], schema)
    facts: dict[str, Fact] = {}
    for line, cells in rows:
        if len(cells) != len(columns):
            raise ValidationError(f"line {line} has {len(cells)} cells, not {len(columns)}")
        fact = _fact(line, dict(zip(columns, cells, strict=True)), schema)
        if fact.fact_key in facts:
            raise ValidationError(f"line {line}: {fact.fact_key} occurs twice")
        facts[fact.fact_key] = fact
        if len(facts) > FACTS_MAX:
            raise DocumentTooLarge(f"the document has more than {FACTS_MAX} facts")
    if not facts:
        raise ValidationError("the document has no facts")
    return in_order(list(facts.values()))


def _rows(content: bytes) -> Iterator[tuple[int, list[str]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValidationError(f"the document is not UTF-8: {error}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise ValidationError(f"line {reader.line_num} is not CSV: {error}") from None


def _columns(header: list[str], schema: Schema) -> list[str]:
    known = {schema.key_column, *(field.name for field in schema.fields)}
    required = {schema.key_column, *(each.name for each in schema.fields if each.default is None)}
    if unknown := set(header) - known:
        raise ValidationError(f"{schema.version} has no column {min(unknown)[:40]!r}")
    if missing := required - set(header):
        raise ValidationError(f"{schema.version} needs a column {min(missing)!r}")
    if len(set(header)) < len(header):
        raise ValidationError("a column occurs twice")
    return header


def _fact(line: int, cells: dict[str, str], schema: Schema) -> Fact:
    key = cells[schema.key_column]
    if not key:
        raise ValidationError(f"line {line} has no {schema.key_column}")
    _check_text(line, schema.key_column, key)
    payload = {field.name: _cell(line, field, cells.get(field.name, "")) for field in schema.fields}
    return Fact(schema.fact_type, key, schema.version, payload)


def _cell(line: int, field: Field, text: str) -> Cell:
    if not text:
        if field.default is None:
            raise ValidationError(f"line {line} has no {field.name}")
        return field.default
    if field.kind is Kind.NUMBER:
        if not _NUMBER.fullmatch(text):
            raise ValidationError(f"line {line}, {field.name}: {text[:40]!r} is not a plain number")
        return decimal_text(Decimal(text))
    if field.kind is Kind.BOOLEAN:
        if text.lower() not in _BOOLEANS:
            raise ValidationError(f"line {line}, {field.name}: {text[:40]!r} is not yes or no")
        return _BOOLEANS[text.lower()]
    return _check_text(line, field.name, text)


def _check_text(line: int, column: str, text: str) -> str:
    if not is_line(text, CELL_CHARS_MAX):
        raise ValidationError(
            f"line {line}, {column}: text must have at most {CELL_CHARS_MAX} characters on one line"
        )
    return text
