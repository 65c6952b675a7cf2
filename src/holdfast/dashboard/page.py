"""A page: its registration, its guard, and what it sees of a request. A page that names no scope is
denied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from holdfast.api.bodies import read_bytes
from holdfast.api.callers import Caller, check_allowed
from holdfast.api.failures import reported
from holdfast.api.openapi import ANY, PUBLIC
from holdfast.api.problems import Problem
from holdfast.dashboard.limits import (
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    PUBLIC_FORM_BYTES_MAX,
)
from holdfast.dashboard.security import (
    LOGIN,
    check_host,
    check_same_origin,
    local_path,
    secure,
)
from holdfast.dashboard.sessions import NOTICE_COOKIE, TOKEN_FIELD, Session
from holdfast.dashboard.unattended import Unattended
from holdfast.domain.errors import StoreError
from holdfast.domain.scope import narrow

if TYPE_CHECKING:
    from holdfast.dashboard.site import Site

FORM_TYPE: Final = "application/x-www-form-urlencoded"
LIVE_HEADER: Final = "x-live"  # of a request by the script that updates a page

Handler = Callable[["Visit"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """`needs` is the scope that a caller's key must have, and with `across`, it must see all
    tenants: as for the API's route that does the same."""

    method: str
    path: str
    needs: str | None
    across: bool
    show: Handler

    def allows(self, caller: Caller) -> bool:
        try:
            self.check(caller)
        except Problem:
            return False
        return True

    def check(self, caller: Caller) -> None:
        if self.needs is None:
            raise Problem("not-allowed", "this page has no scope, so nobody can open it")
        if self.needs != PUBLIC:
            check_allowed(caller, self.needs, across=self.across)


class Pages:
    """A registrar: `@pages.get("/ui/queues", needs="read")` before an async function that takes a
    `Visit` and returns a response."""

    def __init__(self) -> None:
        self.registered: list[Page] = []

    def get(
        self, path: str, *, needs: str | None = None, across: bool = False
    ) -> Callable[[Handler], Handler]:
        return self._add("GET", path, needs, across)

    def post(
        self, path: str, *, needs: str | None = None, across: bool = False
    ) -> Callable[[Handler], Handler]:
        """The function is called only for forms of our own pages."""
        return self._add("POST", path, needs, across)

    def _add(
        self, method: str, path: str, needs: str | None, across: bool
    ) -> Callable[[Handler], Handler]:
        def add(show: Handler) -> Handler:
            self.registered.append(Page(method, path, needs, across, show))
            return show

        return add


class Visit:
    """One request for a page. `path` and `query` are its parameters; a parameter that is given more
    than once has its last value."""

    def __init__(
        self, site: Site, request: Request, caller: Caller | None, session: Session | None
    ) -> None:
        self.site = site
        self.request = request
        self.session = session
        self.path: dict[str, str] = dict(request.path_params)
        self.query: dict[str, str] = dict(request.query_params)
        self.now: datetime = site.service.hf._seam.now()
        self.fields: list[tuple[str, str]] = []  # of the form, in order
        self.unattended: Unattended | None = None  # groups of errors
        self._caller = caller

    @property
    def caller(self) -> Caller:
        assert self._caller is not None, "a public page has no caller"
        return self._caller

    @property
    def is_known(self) -> bool:
        """Whether there is a caller."""
        return self._caller is not None

    @property
    def is_live(self) -> bool:
        """Whether the script asks, to update the page in place."""
        return LIVE_HEADER in self.request.headers

    def may(self, scope: str, across: bool = False) -> bool:
        """Whether the caller may do what needs this scope. Templates hide the rest."""
        if self._caller is None:
            return False
        is_wide = not across or self._caller.tenant is None
        return is_wide and (scope == ANY or scope in self._caller.scopes)

    async def form(self) -> dict[str, str]:
        return dict(self.fields)

    def render(self, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        body = self.site.templates.get_template(template).render(
            visit=self,
            site=self.site,
            may=self.may,
            now=self.now,
            title=title,
            notice=self._notice(),
            csrf_token=self.site.sessions.token(self.session) if self.is_known else "",
            **values,
        )
        return self._answer(body.encode(errors="replace"), status)

    def _notice(self) -> str | None:
        if not self.is_known or self.is_live:
            return None
        return self.site.sessions.notice(self.request, self.session)

    def _answer(self, body: bytes, status: int) -> Response:
        etag = f'"{sha256(body).hexdigest()[:32]}"'
        if self.is_live and self.request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        response = Response(body, status, media_type="text/html", headers={"etag": etag})
        if self.is_known and not self.is_live and NOTICE_COOKIE in self.request.cookies:
            self.site.sessions.forget_notice(response)
        return response

    def redirect(self, path: str, notice: str | None = None) -> Response:
        """Show another page of ours next, with a notice on it."""
        response = RedirectResponse(local_path(path), 303)
        if notice is not None:
            self.site.sessions.notify(response, self.session, notice)
        return response


class PageRoute(Route):
    """The guard of a page."""

    def __init__(self, site: Site, page: Page) -> None:
        super().__init__(page.path, self._answer, methods=[page.method], include_in_schema=False)
        self.page = page
        self.site = site

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self} if found else found  # for the counts by route

    async def _answer(self, request: Request) -> Response:
        try:
            check_host(request, self.site.hosts)
            if self.page.method == "POST":
                check_same_origin(request)
            if self.page.needs == PUBLIC:
                response = await self._show_public(request)
            else:
                response = await self.site.service.health.bounded(self._show(request))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads this
        except Exception as error:
            response = self.site.show_problem(request, reported(request, error))
        return secure(response)

    async def _show_public(self, request: Request) -> Response:
        visit = Visit(self.site, request, None, None)
        if self.page.method == "POST":
            visit.fields = await read_form(request, PUBLIC_FORM_BYTES_MAX)
        return await self.page.show(visit)

    async def _show(self, request: Request) -> Response:
        await self.site.service.gate.find_secret()
        session = self.site.sessions.find(request)
        try:
            caller = await self.site.admit(request, session)
        except Problem as problem:
            if problem.code != "key-missing":
                raise
            return _to_login(request, problem)
        request.state.visitor = caller, session  # for the page of an error
        try:
            self.page.check(caller)
        except Problem:
            await self._record_denial(caller, request)
            raise
        narrow(caller.tenant)  # until the envelope ends, after the response
        visit = Visit(self.site, request, caller, session)
        visit.unattended = await self.site.unattended.of(caller, visit.now)
        if self.page.method == "GET":
            return await self.page.show(visit)
        visit.fields = await read_form(request)
        self.site.sessions.check_token(session, dict(visit.fields).get(TOKEN_FIELD, ""))
        try:
            return await self.page.show(visit)
        finally:
            self.site.unattended.forget()
            self.site.live.hint()  # whatever it changed: others look at it, too

    async def _record_denial(self, caller: Caller, request: Request) -> None:
        if self.site.service.gate.may_record_denial(caller):
            with suppress(StoreError):  # it is denied either way
                action = f"{request.method} {self.path_format}"
                await caller.audit(action, request.url.path, jobs=0, outcome="denied")


def wants_page(request: Request) -> bool:
    """Whether a browser asks, to show a page; not a script or a stream."""
    return LIVE_HEADER not in request.headers and "text/html" in request.headers.get("accept", "")


def _to_login(request: Request, problem: Problem) -> Response:
    """A browser goes to the login, and then back to where it was. A script is told."""
    if not wants_page(request):
        raise problem
    path = "/"
    if request.method == "GET":
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    place = local_path(path)
    return RedirectResponse(LOGIN if place == "/" else f"{LOGIN}?next={quote(place, safe='')}", 303)


async def read_form(request: Request, bytes_max: int = FORM_BYTES_MAX) -> list[tuple[str, str]]:
    """Read the fields of a form, in order, or raise a Problem."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != FORM_TYPE:
        raise Problem("bad-request", f"send a form: the Content-Type must be {FORM_TYPE}")
    body = await read_bytes(request, bytes_max)
    try:
        return parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise Problem("bad-request", "the form can't be read") from error
