"""Run a query on an object's records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.limits import QUERY_OFFSET_MAX
from holdfast_systems.documents.salesforce.local.schema import Entity, Field, Row
from holdfast_systems.documents.salesforce.local.soql import syntax
from holdfast_systems.documents.salesforce.local.soql.filters import comparable, make_test, resolve


@dataclass(frozen=True)
class Answer:
    """The records found and their fields to show; none for COUNT()."""

    total: int
    rows: list[Row]
    names: list[str]


def run(entity: Entity, query: syntax.Query, rows: Collection[Row]) -> Answer:
    """Run a query. Without ORDER BY, records come in the order of their creation."""
    names = [resolve(entity, name, query.text).name for name in query.fields]
    if query.offset > QUERY_OFFSET_MAX:
        message = f"Maximum SOQL offset allowed is {QUERY_OFFSET_MAX}"
        raise ApiError("NUMBER_OUTSIDE_VALID_RANGE", message)
    found = list(rows)
    if query.where is not None:
        found = list(filter(make_test(entity, query.where, query.text), found))
    end = None if query.limit is None else query.offset + query.limit
    chosen = _ordered(entity, query, found)[query.offset : end]
    return Answer(len(chosen), chosen if names else [], names)


def _ordered(entity: Entity, query: syntax.Query, rows: list[Row]) -> list[Row]:
    # The sort is stable, so sort by the least important key first.
    for order in reversed(query.order):
        field = resolve(entity, order.name, query.text)
        if not field.filterable:
            message = f"field '{field.name}' can not be sorted in a query call"
            raise syntax.malformed(query.text, order.name.column, message, "INVALID_FIELD")
        rows = _sorted_by(field, order, rows)
    return rows


def _sorted_by(field: Field, order: syntax.Order, rows: list[Row]) -> list[Row]:
    def key(row: Row) -> Any:
        return comparable(field, row[field.name])

    empty = [row for row in rows if row[field.name] is None]
    filled = sorted(
        (row for row in rows if row[field.name] is not None), key=key, reverse=order.descending
    )
    return filled + empty if order.nulls_last else empty + filled
