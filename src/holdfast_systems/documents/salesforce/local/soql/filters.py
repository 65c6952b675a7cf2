"""Turn a parsed condition into a test on records.

Two things differ from SQL: text is compared without regard to case, unless its field is an
identifier, and there is no third truth value, so that `!=` and NOT IN hold for an empty field.
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
from holdfast_systems.documents.salesforce.local.soql.patterns import matches, parts_of

Test: TypeAlias = Callable[[Row], bool]

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EXPECTED = {"datetime": "dateTime", "double": "double", "int": "int", "boolean": "boolean"}


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
    if comparison.operator == "LIKE":
        return _like(field, comparison)
    name = field.name
    wanted = [_literal(field, value) for value in comparison.values]
    if comparison.operator in ("=", "IN"):
        return lambda row: comparable(field, row[name]) in wanted
    if comparison.operator in ("!=", "NOT IN"):
        return lambda row: comparable(field, row[name]) not in wanted
    return _inequality(field, COMPARE[comparison.operator], wanted[0])


def _inequality(field: Field, compare: Callable[[Any, Any], bool], wanted: Stored) -> Test:
    def test(row: Row) -> bool:
        value = comparable(field, row[field.name])
        return value is not None and wanted is not None and compare(value, wanted)

    return test


def _like(field: Field, comparison: syntax.Comparison) -> Test:
    (pattern,) = comparison.values
    if field.type not in ("string", "picklist") or not isinstance(pattern, syntax.Pattern):
        raise _operator_refused(f"invalid operator on {field.type} field")
    parts = parts_of(pattern.escaped)

    def test(row: Row) -> bool:
        value = row[field.name]
        return isinstance(value, str) and matches(parts, value)

    return test


def comparable(field: Field, value: Stored) -> Stored:
    """Give a value as it is compared and sorted."""
    if isinstance(value, str) and not field.case_sensitive:
        return value.lower()
    return value


def _literal(field: Field, value: syntax.Value) -> Stored:
    match field.type:
        case _ if value is None:
            return None
        case "id" | "reference" if isinstance(value, str):
            found = full_id(value)
            if found is None:
                raise _operator_refused(f"invalid ID field: {value}")
            return found
        case "string" | "picklist" if isinstance(value, str):
            return comparable(field, value)
        case "double" | "int" if isinstance(value, float):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "datetime" if isinstance(value, datetime):
            return value
    kind = EXPECTED.get(field.type, "string")
    quotes = "should be" if kind == "string" else "should not be"
    raise ApiError(
        "INVALID_FIELD",
        f"value of filter criterion for field '{field.name}' must be of type {kind} and "
        f"{quotes} enclosed in quotes",
    )


def _operator_refused(message: str) -> ApiError:
    return ApiError("INVALID_QUERY_FILTER_OPERATOR", message)
