"""A query, parsed. Names are as they were written; the columns are for error messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal, TypeAlias

from holdfast_systems.documents.salesforce.local.errors import ApiError


@dataclass(frozen=True)
class Pattern:
    """The text of a LIKE, its escapes still in it: `\\%` is a percent sign, `%` is anything."""

    escaped: str


Value: TypeAlias = str | float | bool | datetime | date | Pattern | None
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "LIKE", "IN", "NOT IN"]


@dataclass(frozen=True)
class Name:
    text: str
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Comparison:
    name: Name
    operator: Operator
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Not:
    part: Condition


@dataclass(frozen=True)
class All:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Not | All | Any


@dataclass(frozen=True)
class Order:
    name: Name
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True)
class Query:
    """What was asked; no fields means COUNT()."""

    fields: tuple[Name, ...]
    entity: Name
    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    text: str = field(default="", compare=False)


def malformed(text: str, column: int, message: str, code: str = "MALFORMED_QUERY") -> ApiError:
    """Point at the place, as the API does: the text, a caret below it, the position."""
    start = max(0, column - 60)
    shown = text[start : column + 60].replace("\n", " ")
    caret = " " * (column - start) + "^"
    return ApiError(code, f"\n{shown}\n{caret}\nERROR at Row:1:Column:{column + 1}\n{message}")
