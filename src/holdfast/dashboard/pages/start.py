"""/: where everybody begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.dashboard.page import Pages, Visit

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site


def pages(site: Site) -> Pages:
    pages = Pages()

    @pages.get("/", needs="any")
    async def show_start(visit: Visit) -> Response:
        return visit.render("start.html", title="Holdfast")

    return pages
