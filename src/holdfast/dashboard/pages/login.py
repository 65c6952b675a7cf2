"""/ui/login and /ui/logout: a session begins with a key, and ends."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from holdfast.api.gate import address_of
from holdfast.api.openapi import ANY, PUBLIC
from holdfast.api.problems import Problem
from holdfast.dashboard.page import Pages, Visit
from holdfast.dashboard.security import LOGIN, LOGOUT, keeps_cookies, local_path
from holdfast.domain.audit import Actor, Outcome
from holdfast.domain.errors import NotInThisStore, StoreError
from holdfast.domain.keys import Key, id_of

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

_INVALID: Final = "This key is unknown, expired or revoked."
_ROTATED: Final = "This key was rotated. Log in with the new one."


def pages(site: Site) -> Pages:
    pages = Pages()
    bounded = site.service.health.bounded

    @pages.get(LOGIN, needs=PUBLIC)
    async def show_login(visit: Visit) -> Response:
        return await bounded(_show(visit))

    @pages.post(LOGIN, needs=PUBLIC)
    async def log_in(visit: Visit) -> Response:
        return await bounded(_log_in(visit))

    @pages.post(LOGOUT, needs=ANY)
    async def log_out(visit: Visit) -> Response:
        response = RedirectResponse(f"{LOGIN}?out=1", 303)
        site.sessions.end(response)
        return response

    return pages


async def _show(visit: Visit) -> Response:
    place = local_path(visit.query.get("next", "/"))
    try:
        await visit.site.service.gate.admit_without_key(visit.request)
    except Problem as problem:
        if problem.code != "key-missing":
            raise
        return _form(visit, place)
    return RedirectResponse(place, 303)  # there are no keys


async def _log_in(visit: Visit) -> Response:
    gate, form = visit.site.service.gate, await visit.form()
    place, text = local_path(form.get("next", "/")), form.get("key", "").strip()
    await gate.find_secret()
    try:
        key = await gate.check_key(visit.request, text)
    except Problem as problem:
        if problem.code != "key-missing":
            raise
        if gate.may_record_failure(visit.request):
            await _record(visit, text, None)
        return _form(visit, place, _INVALID)
    if key.replaced_by is not None:
        return _form(visit, place, _ROTATED)
    await _record(visit, text, key)
    response = RedirectResponse(place, 303)
    visit.site.sessions.begin(response, key)
    return response


async def _record(visit: Visit, text: str, key: Key | None) -> None:
    """Add an entry to the audit log. The ID in the text of a key is no secret."""
    actor = Actor(
        name="unknown" if key is None else key.name,
        key_id=None if key is None else key.id,
        tenant=None if key is None else key.tenant,
        address=address_of(visit.request),
        correlation_id=visit.request.state.correlation_id,
    )
    outcome: Outcome = "denied" if key is None else "allowed"
    with suppress(StoreError, NotInThisStore):
        await visit.site.service.hf.audit.record(
            actor, "dashboard.login", id_of(text), jobs=0, outcome=outcome
        )


def _form(visit: Visit, place: str, error: str | None = None) -> Response:
    response = visit.render(
        "login.html",
        title="Log in",
        status=200 if error is None else 401,
        place=place,
        error=error,
        is_out="out" in visit.query,
        is_kept=keeps_cookies(visit.request),
    )
    if error is not None:
        response.headers["www-authenticate"] = 'Bearer realm="holdfast"'
    return response
