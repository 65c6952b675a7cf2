"""/ui/breakers: what jobs depend on, and whether it is down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import PARKED_COUNTED_MAX

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

BREAKERS = "/ui/breakers"
BREAKER = "/ui/breakers/{key:name}"


def pages(site: Site) -> Pages:
    pages = Pages()
    breakers = site.service.hf.breakers

    @pages.get(BREAKERS, needs="read", across=True)
    async def show_breakers(visit: Visit) -> Response:
        return await _show(visit)

    @pages.post(BREAKERS, needs="operate", across=True)
    async def open_named_breaker(visit: Visit) -> Response:
        """Open a breaker that may have no record yet."""
        form = await visit.form()
        key = form.get("key", "").strip()
        try:
            return await _open(visit, key, form.get("because") or None)
        except HoldfastError as error:
            return await _show(visit, status=422, key=key, key_error=str(error))

    @pages.post(f"{BREAKER}/open", needs="operate", across=True)
    async def open_breaker(visit: Visit) -> Response:
        form = await visit.form()
        return await _open(visit, visit.path["key"], form.get("because") or None)

    @pages.post(f"{BREAKER}/close", needs="operate", across=True)
    async def close_breaker(visit: Visit) -> Response:
        key = visit.path["key"]
        async with visit.caller.audited("breaker.close", key, jobs=0):
            await breakers.close(key)
        return visit.redirect(BREAKERS, notice=f"Breaker {key} is closed. Its jobs follow.")

    @pages.post(f"{BREAKER}/reset", needs="operate", across=True)
    async def reset_breaker(visit: Visit) -> Response:
        key = visit.path["key"]
        async with visit.caller.audited("breaker.reset", key, jobs=0):
            await breakers.reset(key)
        return visit.redirect(BREAKERS, notice=f"The record of breaker {key} is deleted.")

    return pages


async def _open(visit: Visit, key: str, because: str | None) -> Response:
    async with visit.caller.audited("breaker.open", key, jobs=0, because=because):
        await visit.caller.hf.breakers.open(key, by=visit.caller.name, because=because)
    return visit.redirect(BREAKERS, notice=f"Breaker {key} is open. Its jobs are parked.")


async def _show(visit: Visit, status: int = 200, **values: Any) -> Response:
    return visit.render(
        "breakers.html",
        title="Breakers",
        status=status,
        breakers=await visit.caller.hf.breakers.list(),
        counted_max=PARKED_COUNTED_MAX,
        **{"key": "", "key_error": None} | values,
    )
