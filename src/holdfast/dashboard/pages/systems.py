"""/ui/systems/<slug>: the pages of each system, drawn from what it says of itself."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from starlette.responses import Response

from holdfast.api.problems import Problem
from holdfast.dashboard import systems
from holdfast.dashboard.files import PICTURES, file_response, is_shown_in_place
from holdfast.dashboard.format import plain
from holdfast.dashboard.limits import SYSTEM_ROWS_MAX
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.systems import RunsForms, SystemPages, read_id

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

PATH: Final = "/ui/systems"
_ID_CHARS: Final = 8
_CODE_CHARS: Final = 18  # the ID of a record in Salesforce
_KINDS: Final = (
    (systems.Status, "status"),
    (systems.Code, "code"),
    (systems.JobLink, "job"),
    (systems.ItemLink, "item"),
    (datetime, "time"),
    (str, "text"),
    (int | float | Decimal, "number"),
)


def pages(site: Site) -> Pages:
    pages = Pages()
    site.templates.filters.update(FILTERS)
    for system in site.systems:
        _add_list(pages, system)
        _add_item(pages, system)
    return pages


def path_of(system: SystemPages) -> str:
    return f"{PATH}/{system.slug}"


def _add_list(pages: Pages, system: SystemPages) -> None:
    path = path_of(system)

    @pages.get(path, needs="read")
    async def show_list(visit: Visit) -> Response:
        after = visit.query.get("after")
        listing = await system.list(visit.caller, after, SYSTEM_ROWS_MAX)
        following = listing.after and f"{path}?{urlencode({'after': listing.after})}"
        return visit.render(
            "systems_list.html",
            title=system.title,
            system=system,
            path=path,
            root=PATH,
            listing=listing,
            following=following,
            is_first=after is None,
            runs=isinstance(system, RunsForms),
        )


def _add_item(pages: Pages, system: SystemPages) -> None:
    path = path_of(system)

    @pages.get(f"{path}/{{item_id}}", needs="read")
    async def show_item(visit: Visit) -> Response:
        item_id = visit.path["item_id"]
        item = await system.item(visit.caller, item_id)
        if item is None:
            raise Problem("not-found", f"{system.title} has no item with this ID")
        return visit.render(
            "systems_item.html",
            title=item.title,
            system=system,
            path=path,
            root=PATH,
            item_id=item_id,
            item=item,
            files=f"{path}/{quote(item_id, safe='')}/files/",
            shown=[each for each in item.files if is_shown_in_place(each.media_type)],
            downloads=[each for each in item.files if not is_shown_in_place(each.media_type)],
            pictures=PICTURES,
        )

    @pages.get(f"{path}/{{item_id}}/files/{{name}}", needs="read")
    async def show_file(visit: Visit) -> Response:
        file = await system.file(visit.caller, visit.path["item_id"], visit.path["name"])
        if file is None:
            raise Problem("not-found", f"{system.title} has no such file")
        is_shown = "download" not in visit.query
        return file_response(file.name, file.media_type, file.content, is_shown=is_shown)


def cell_kind(cell: object) -> str:
    """Which way templates show a cell."""
    return next((name for kind, name in _KINDS if isinstance(cell, kind)), "none")


def short_code(text: str) -> str:
    """The part of a long ID or hash that tells it from its neighbors: the end of a UUID, whose
    beginning may be a time, and the beginning of anything else."""
    if read_id(text) is not None:
        return text[-_ID_CHARS:]
    return plain(
        text if len(text) <= _CODE_CHARS else f"{text[:_CODE_CHARS]}\N{HORIZONTAL ELLIPSIS}"
    )


FILTERS: Final = {"cell_kind": cell_kind, "short_code": short_code}
