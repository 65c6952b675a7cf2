"""/ui/keys: create, rotate and revoke keys. A new key is shown once, on the page that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from holdfast.api.bodies import convert
from holdfast.api.problems import Problem
from holdfast.api.routes.keys import KeyRequest, Rotation
from holdfast.dashboard.page import Pages, Visit
from holdfast.domain.errors import BadArguments
from holdfast.domain.keys import SCOPES, NewKey

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

PATH: Final = "/ui/keys"
NEW: Final = "/ui/keys/new"
MEANINGS: Final = {
    "read": "see jobs, queues and workers",
    "enqueue": "run jobs",
    "operate": "cancel and requeue jobs, pause queues",
    "work": "lease jobs, as a worker over HTTP",
    "admin": "keys and the audit log",
}
FIELDS: Final = ("name", "scopes", "tenant", "expires_in_seconds", "requests_per_second")
_DAY: Final = 86400
LIFETIMES: Final = (
    ("", "never"),
    (str(_DAY), "in a day"),
    (str(30 * _DAY), "in 30 days"),
    (str(90 * _DAY), "in 90 days"),
    (str(365 * _DAY), "in a year"),
)
OVERLAPS: Final = (
    ("0", "at once"),
    ("3600", "in an hour"),
    (str(_DAY), "in a day"),
    (str(7 * _DAY), "in a week"),
)


def pages(site: Site) -> Pages:
    pages = Pages()
    pages.get(PATH, needs="admin", across=True)(list_keys)
    pages.get(NEW, needs="admin", across=True)(show_form)
    pages.post(PATH, needs="admin", across=True)(create_key)
    pages.post("/ui/keys/{key_id}/rotate", needs="admin", across=True)(rotate_key)
    pages.post("/ui/keys/{key_id}/revoke", needs="admin", across=True)(revoke_key)
    return pages


async def list_keys(visit: Visit) -> Response:
    ended = visit.query.get("ended") == "true"
    return visit.render(
        "keys.html",
        title="Keys",
        keys=await visit.caller.hf.keys.list(ended=ended),
        ended=ended,
        overlaps=OVERLAPS,
        default_overlap=str(_DAY),
    )


async def show_form(visit: Visit) -> Response:
    return await _render_form(visit, {"scopes": ["read"]}, {})


async def create_key(visit: Visit) -> Response:
    given = {name: text.strip() for name, text in visit.fields if text.strip()}
    scopes = [text for name, text in visit.fields if name == "scopes"]
    if not scopes or "name" not in given:
        missing = {} if scopes else {"scopes": "choose at least one scope"}
        missing |= {} if "name" in given else {"name": "enter a name"}
        return await _render_form(visit, {**given, "scopes": scopes}, missing, 422)
    try:
        new = convert(_request(given, scopes), KeyRequest)
        made = await visit.caller.hf.keys.create(
            **msgspec.structs.asdict(new), by=visit.caller.actor
        )
    except Problem as problem:
        errors = {(at.pointer or "")[1:].partition("/")[0]: at.detail for at in problem.errors}
    except BadArguments as error:
        errors = {"": str(error)}
    else:
        return _show_once(visit, made, "Key created")
    return await _render_form(visit, {**given, "scopes": scopes}, errors, 422)


async def rotate_key(visit: Visit) -> Response:
    seconds = (await visit.form()).get("overlap_seconds", str(_DAY))
    rotation = convert({"overlap_seconds": _number(seconds)}, Rotation)
    made = await visit.caller.hf.keys.rotate(
        visit.path["key_id"], overlap_seconds=rotation.overlap_seconds, by=visit.caller.actor
    )
    return _show_once(visit, made, "Key rotated")


async def revoke_key(visit: Visit) -> Response:
    key = await visit.caller.hf.keys.revoke(visit.path["key_id"], by=visit.caller.actor)
    return visit.redirect(PATH, notice=f"The key {key.name} is revoked.")


async def _render_form(
    visit: Visit, given: Mapping[str, Any], errors: Mapping[str, str], status: int = 200
) -> Response:
    return visit.render(
        "key_new.html",
        title="New key",
        status=status,
        given={**dict.fromkeys(FIELDS, ""), **given},
        errors={**dict.fromkeys(("", *FIELDS)), **errors},
        meanings=MEANINGS,
        scopes=SCOPES,
        lifetimes=LIFETIMES,
        is_first=not await visit.caller.hf.keys.exist(),
    )


def _show_once(visit: Visit, made: NewKey, title: str) -> Response:
    return visit.render("key_made.html", title=title, status=201, key=made)


def _request(given: Mapping[str, str], scopes: Sequence[str]) -> dict[str, Any]:
    request: dict[str, Any] = {"name": given.get("name", ""), "scopes": scopes}
    if "tenant" in given:
        request["tenant"] = given["tenant"]
    for name in ("expires_in_seconds", "requests_per_second"):
        if name in given:
            request[name] = _number(given[name])
    return request


def _number(text: str) -> float | str:
    """The number, or the text, which is then refused by its type."""
    try:
        return float(text)
    except ValueError:
        return text
