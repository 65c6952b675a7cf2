"""A parsed query. Names are spelled as in its text; columns are for error messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from holdfast_systems.documents.salesforce.local.errors import ApiError

Value: TypeAlias = str | float | bool | datetime | None
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN"]


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
    """A query; no fields means COUNT()."""

    fields: tuple[Name, ...]
    entity: Name
    where: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    text: str = field(default="", compare=False)


def malformed(text: str, column: int, message: str, code: str = "MALFORMED_QUERY") -> ApiError:
    """Point at the error as the API does: the text, a caret under it, the position."""
    start = max(0, column - 60)
    shown = text[start : column + 60].replace("\n", " ")
    caret = " " * (column - start) + "^"
    return ApiError(code, f"\n{shown}\n{caret}\nERROR at Row:1:Column:{column + 1}\n{message}")
