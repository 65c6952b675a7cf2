"""The resource query: SOQL in, pages of records out."""

from __future__ import annotations

import re
from typing import Any

from holdfast_systems.documents.salesforce.local import limits
from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError, not_allowed
from holdfast_systems.documents.salesforce.local.ids import make_id
from holdfast_systems.documents.salesforce.local.organization import Organization
from holdfast_systems.documents.salesforce.local.schema import ENTITIES
from holdfast_systems.documents.salesforce.local.soql import parse, run
from holdfast_systems.documents.salesforce.local.soql.syntax import Query, malformed
from holdfast_systems.documents.salesforce.local.values import show_record

LOCATOR = re.compile(r"(01g[0-9A-Za-z]{15})-(\d{1,9})")
BATCH_SIZE = re.compile(r"batchSize=(\d{1,9})")


class Queries:
    """Answers queries, and keeps the latest results for their next pages."""

    def __init__(self, organization: Organization) -> None:
        self._organization = organization
        self._cursors: dict[str, list[dict[str, Any]]] = {}
        self._made = 0

    def answer(self, call: Call) -> Answer:
        match call.method, call.path[1:]:
            case "GET", ():
                return self._first_page(call)
            case "GET", (locator,):
                return self._next_page(call, locator)
        raise not_allowed(call.method)

    def _first_page(self, call: Call) -> Answer:
        text = call.parameters.get("q")
        if text is None:
            raise ApiError("MALFORMED_QUERY", "A query string has to be specified")
        total, records = self._run(parse(text), call)
        if len(records) <= _batch_size(call):
            return Answer(200, {"totalSize": total, "done": True, "records": records})
        self._made += 1
        cursor = make_id("01g", self._made)
        while len(self._cursors) >= limits.CURSORS_MAX:
            del self._cursors[next(iter(self._cursors))]
        self._cursors[cursor] = records
        return self._page(call, cursor, 0)

    def _run(self, query: Query, call: Call) -> tuple[int, list[dict[str, Any]]]:
        entity = ENTITIES.get(query.entity.text.lower())
        if entity is None:
            message = f"sObject type '{query.entity.text}' is not supported."
            raise malformed(query.text, query.entity.column, message, "INVALID_TYPE")
        found = run(entity, query, self._organization.rows(entity))
        shown = [show_record(entity, row, call.version, found.names) for row in found.rows]
        return found.total, shown

    def _next_page(self, call: Call, locator: str) -> Answer:
        found = LOCATOR.fullmatch(locator)
        if found is None or found[1] not in self._cursors:
            raise ApiError("INVALID_QUERY_LOCATOR", "invalid query locator")
        return self._page(call, found[1], int(found[2]))

    def _page(self, call: Call, cursor: str, start: int) -> Answer:
        records = self._cursors[cursor]
        end = start + _batch_size(call)
        page: dict[str, Any] = {"totalSize": len(records), "done": end >= len(records)}
        if not page["done"]:
            page["nextRecordsUrl"] = f"/services/data/v{call.version}/query/{cursor}-{end}"
        return Answer(200, {**page, "records": records[start:end]})


def _batch_size(call: Call) -> int:
    asked = BATCH_SIZE.search(call.headers.get("sforce-query-options", ""))
    size = int(asked[1]) if asked else limits.QUERY_BATCH_MAX
    return min(max(size, limits.QUERY_BATCH_MIN), limits.QUERY_BATCH_MAX)
