"""Bulk operations: what they change, how far they are; start, pause, resume and cancel them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
from starlette.responses import Response

from holdfast.api.cursors import make_cursor, read_cursor
from holdfast.api.limits import PAGE_JOBS_DEFAULT
from holdfast.api.problems import Problem
from holdfast.dashboard.changes import BULK
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.bulk import BulkChange, BulkState
from holdfast.domain.errors import WrongState

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

TONES: Final = {
    BulkState.PREVIEWED: "wait",
    BulkState.RUNNING: "busy",
    BulkState.PAUSED: "warn",
    BulkState.COMPLETED: "good",
    BulkState.CANCELED: "muted",
}
DONE: Final = {"start": "started", "pause": "paused", "resume": "resumed", "cancel": "canceled"}


def pages(site: Site) -> Pages:
    pages = Pages()
    site.templates.globals["bulk_tone"] = TONES.get

    @pages.get(BULK, needs="read")
    async def show_changes(visit: Visit) -> Response:
        bound = (BULK, visit.caller.tenant)
        after = read_cursor(visit.query.get("cursor"), *bound)
        page = await visit.caller.bulk.list(PAGE_JOBS_DEFAULT, after)
        return visit.render(
            "bulk.html",
            title="Bulk operations",
            changes=page.changes,
            first_url=BULK if after else None,
            next_url=page.after and f"{BULK}?cursor={make_cursor(page.after, *bound)}",
        )

    @pages.get(f"{BULK}/{{id}}", needs="read")
    async def show_change(visit: Visit) -> Response:
        return await _show(visit)

    for name in DONE:
        _add_verb(pages, name)
    return pages


def _add_verb(pages: Pages, verb: str) -> None:
    @pages.post(f"{BULK}/{{id}}/{verb}", needs="operate")
    async def change(visit: Visit) -> Response:
        bulk = visit.caller.bulk
        found = await bulk.get(_id(visit))
        try:
            left = found.total - found.done
            async with visit.caller.audited(f"bulk.{verb}", found.id, jobs=left):
                await getattr(bulk, verb)(found.id)
        except WrongState as error:
            return await _show(visit, str(error))
        visit.site.service.bulk.wake()
        return visit.redirect(f"{BULK}/{found.id}", notice=f"This operation is {DONE[verb]}.")


async def _show(visit: Visit, refused: str | None = None) -> Response:
    change = await visit.caller.bulk.get(_id(visit))
    return visit.render(
        "bulk_change.html",
        title=title_of(change),
        status=409 if refused else 200,
        refused=refused,
        change=change,
        filters=_filters(change),
        fingerprint=change.filter and change.filter.fingerprint,
    )


def title_of(change: BulkChange) -> str:
    jobs = "1 job" if change.total == 1 else f"{change.total:,} jobs"
    return f"{change.action.capitalize()} {jobs}"


def _filters(change: BulkChange) -> list[tuple[str, str]]:
    """What the jobs were searched by."""
    if change.filter is None:
        return []
    values = msgspec.structs.asdict(change.filter)
    values["states"] = ", ".join(change.filter.states)
    del values["fingerprint"]
    return [
        (name.replace("_", " ").capitalize(), str(value)) for name, value in values.items() if value
    ]


def _id(visit: Visit) -> UUID:
    try:
        return UUID(visit.path["id"])
    except ValueError:
        raise Problem("bulk-change-not-found", "there is no such bulk operation") from None
