"""/v1/audit: who did what, when, from where, and to how many jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.cursors import next_page, read_cursor
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.limits import PAGE_JOBS_DEFAULT, PAGE_JOBS_MAX
from holdfast.api.openapi import describes
from holdfast.api.pages import Time, check_times
from holdfast.api.queries import read_query
from holdfast.api.routes.jobs import LINK
from holdfast.api.service import Service
from holdfast.domain.audit import AuditEntry, AuditFilter, Outcome


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list: those that match all of these."""

    actor: str | None = None
    key_id: str | None = None
    tenant: str | None = None
    action: Annotated[str | None, Meta(description="For example `queue.pause`.")] = None
    target: str | None = None
    outcome: Outcome | None = None
    since: Annotated[Time | None, Meta(description="At this time or later.")] = None
    until: Annotated[Time | None, Meta(description="Before this time.")] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_JOBS_MAX)] = PAGE_JOBS_DEFAULT
    cursor: Annotated[str | None, Meta(description="From the `next` of the previous page.")] = None


class AuditLog(msgspec.Struct, frozen=True):
    """Entries, newest first. `next` is the path of the next page, or null on the last page."""

    entries: list[AuditEntry]
    next: str | None


EXAMPLES[AuditLog] = {
    "entries": [
        {
            "id": "01a1eb4e-7c00-7000-8000-00000000003c",
            "at": WHEN,
            "actor": "operations",
            "key_id": "7kq2mzv4d3xa",
            "action": "queue.pause",
            "outcome": "allowed",
            "target": "images",
            "jobs": 0,
            "address": "192.0.2.17",
            "because": "the disk is full",
        }
    ],
    "next": None,
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/audit", tags=["Audit log"])

    @router.get(
        "", **describes("admin", {200: AuditLog}, query=AuditQuery, headers=LINK, across=True)
    )
    async def list_audit_log(request: Request) -> Response:
        """List who did what, newest first: changes by operators, changes to keys, and denials.

        Enqueued, leased and ended jobs are not in the log: the jobs themselves are the record.
        """
        query = read_query(request, AuditQuery)
        check_times(query)
        filter = AuditFilter(
            **{name: getattr(query, name) for name in AuditFilter.__struct_fields__}
        )
        bound = (request.url.path, filter)
        page = await service.hf.audit.list(filter, query.limit, read_cursor(query.cursor, *bound))
        following, headers = next_page(request, page.after, *bound)
        return answer(AuditLog(page.entries, following), headers=headers)

    return router
