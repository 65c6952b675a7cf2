"""Turn a parsed condition into a test on records.

Two things differ from SQL: text comparisons ignore case unless the field is an identifier, and
there is no third truth value, so `!=` and NOT IN match an empty field.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.ids import full_id
from holdfast_systems.documents.salesforce.local.schema import Entity, Field, Row, Stored
from holdfast_systems.documents.salesforce.local.soql import syntax

Test: TypeAlias = Callable[[Row], bool]

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# What a literal for these fields must be; for all others, it must be a string.
LITERALS: dict[str, tuple[str, type]] = {
    "datetime": ("dateTime", datetime),
    "double": ("double", float),
    "int": ("int", float),
}


def resolve(entity: Entity, name: syntax.Name, text: str) -> Field:
    field = entity.field(name.text)
    if field is None:
        raise syntax.malformed(
            text,
            name.column,
            f"No such column '{name.text}' on entity '{entity.name}'. If you are attempting to use "
            "a custom field, be sure to append the '__c' after the custom field name. Please "
            "reference your WSDL or the describe call for the appropriate names.",
            "INVALID_FIELD",
        )
    return field


def make_test(entity: Entity, condition: syntax.Condition, text: str) -> Test:
    match condition:
        case syntax.Not(part):
            negated = make_test(entity, part, text)
            return lambda row: not negated(row)
        case syntax.All(parts):
            every = [make_test(entity, part, text) for part in parts]
            return lambda row: all(test(row) for test in every)
        case syntax.Any(parts):
            some = [make_test(entity, part, text) for part in parts]
            return lambda row: any(test(row) for test in some)
        case syntax.Comparison():
            return _comparison(entity, condition, text)


def _comparison(entity: Entity, comparison: syntax.Comparison, text: str) -> Test:
    field = resolve(entity, comparison.name, text)
    if not field.filterable:
        message = f"field '{field.name}' can not be filtered in a query call"
        raise syntax.malformed(text, comparison.name.column, message, "INVALID_FIELD")
    name = field.name
    wanted = [_literal(field, value) for value in comparison.values]
    if comparison.operator in ("=", "IN"):
        return lambda row: comparable(field, row[name]) in wanted
    if comparison.operator in ("!=", "NOT IN"):
        return lambda row: comparable(field, row[name]) not in wanted
    compare = COMPARE[comparison.operator]

    def test(row: Row) -> bool:
        value = comparable(field, row[name])
        return value is not None and wanted[0] is not None and compare(value, wanted[0])

    return test


def comparable(field: Field, value: Stored) -> Stored:
    """Return a value as it is compared and sorted."""
    if isinstance(value, str) and not field.case_sensitive:
        return value.lower()
    return value


def _literal(field: Field, value: syntax.Value) -> Stored:
    if value is None:
        return None
    kind, expected = LITERALS.get(field.type, ("string", str))
    if not isinstance(value, expected):
        quotes = "should be" if kind == "string" else "should not be"
        raise ApiError(
            "INVALID_FIELD",
            f"value of filter criterion for field '{field.name}' must be of type {kind} and "
            f"{quotes} enclosed in quotes",
        )
    if field.type in ("id", "reference"):
        found = full_id(str(value))
        if found is None:
            raise ApiError("INVALID_QUERY_FILTER_OPERATOR", f"invalid ID field: {value}")
        return found
    return comparable(field, value)
