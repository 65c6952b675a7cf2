"""The schemas of documents, and the facts that they give."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast_systems.passport.errors import ValidationError


class Kind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"


Cell = str | bool  # numbers are strings, as in the JSON


class Field(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    default: Cell | None = None  # None: required


class Schema(msgspec.Struct, frozen=True):
    """One row of the document is one fact, named by its key column."""

    version: str
    fact_type: str
    key_column: str
    fields: tuple[Field, ...]

    def kind_of(self, field: str) -> Kind | None:
        return next((each.kind for each in self.fields if each.name == field), None)


BILL_OF_MATERIALS = Schema(
    version="bom.1",
    fact_type="component",
    key_column="part",
    fields=(
        Field("material", Kind.TEXT),
        Field("mass_kg", Kind.NUMBER),
        Field("quantity", Kind.NUMBER, "1"),
        Field("recycled_percent", Kind.NUMBER, "0"),
        Field("origin", Kind.TEXT, ""),
        Field("hazardous", Kind.BOOLEAN, False),
    ),
)

SCHEMAS = {schema.version: schema for schema in (BILL_OF_MATERIALS,)}


def find_schema(version: str) -> Schema:
    if version not in SCHEMAS:
        raise ValidationError(f"no schema {version!r}; use one of: {', '.join(SCHEMAS)}")
    return SCHEMAS[version]
