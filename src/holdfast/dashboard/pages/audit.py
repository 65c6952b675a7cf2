"""/ui/audit: who did what, when, from where, and to how many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from holdfast.api.cursors import make_cursor, read_cursor
from holdfast.api.limits import PAGE_JOBS_DEFAULT
from holdfast.api.problems import Problem
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.audit import AuditFilter, AuditPage
from holdfast.domain.errors import BadArguments
from holdfast.domain.times import parse_moment

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

PATH: Final = "/ui/audit"
FIELDS: Final = AuditFilter.__struct_fields__
_EXAMPLE: Final = "2026-11-18 09:30"


def pages(site: Site) -> Pages:
    pages = Pages()
    audit = site.service.hf.audit

    @pages.get(PATH, needs="admin", across=True)
    async def list_entries(visit: Visit) -> Response:
        given = {name: text for name in FIELDS if (text := visit.query.get(name, "").strip())}
        bound: tuple[object, ...] = (PATH,)
        try:
            filter = msgspec.convert(_times(given, visit.now), AuditFilter)
            bound = (PATH, filter)
            after = read_cursor(visit.query.get("cursor"), *bound)
            page, problem = await audit.list(filter, PAGE_JOBS_DEFAULT, after), None
        except (msgspec.ValidationError, BadArguments, Problem) as error:
            page, problem = AuditPage([], None), _words(error)
        return visit.render(
            "audit.html",
            title="Audit log",
            status=200 if problem is None else 400,
            page=page,
            problem=problem,
            given={name: visit.query.get(name, "") for name in FIELDS},
            is_filtered=bool(given),
            next_url=_path(given, cursor=make_cursor(page.after, *bound)) if page.after else None,
            first_url=_path(given) if "cursor" in visit.query else None,
            narrowed=lambda **more: _path({**given, **more}),
        )

    return pages


def _times(given: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """The filter with its times: `2h` is two hours ago; without a zone, a time is in UTC."""
    times: dict[str, Any] = {}
    for name in ("since", "until"):
        if name in given:
            times[name] = parse_moment(given[name].removesuffix(" UTC"), now)
            if times[name] is None:
                raise BadArguments(f"{name}: write an age like 2h, or a time like {_EXAMPLE}")
    return {**given, **times}


def _words(error: Exception) -> str:
    return str(error).replace("`", "").replace("$.", "")


def _path(given: Mapping[str, str], **more: str) -> str:
    query = urlencode({**given, **more})
    return f"{PATH}?{query}" if query else PATH
