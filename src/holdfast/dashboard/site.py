"""What all pages share: the service, templates, sessions, the live hub and the menu."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.api.callers import Caller
from holdfast.api.problems import Problem
from holdfast.api.service import Service
from holdfast.dashboard import charts, format, pages, static
from holdfast.dashboard.kept import KeptByTenant
from holdfast.dashboard.limits import GROUPS_KEPT_SECONDS
from holdfast.dashboard.live import Live
from holdfast.dashboard.page import Page, PageRoute, Visit, wants_page
from holdfast.dashboard.pages.systems import path_of
from holdfast.dashboard.security import LOGIN, LOGOUT, check_host, secure
from holdfast.dashboard.sessions import Session, Sessions
from holdfast.dashboard.unattended import count_unattended
from holdfast.domain.diagnosis.findings import APP_PLACEHOLDER
from holdfast.domain.secrets import masked

PACKAGE: Final = "holdfast.dashboard"
THEMES: Final = ("light", "dark")
ROLES: Final = (("admin", "administrator"), ("operate", "operator"), ("read", "viewer"))


class Entry(NamedTuple):
    """An entry of the menu. Only those who may open its page see it, and with `across`, only those
    who see all tenants. `key` is pressed after `g`."""

    title: str
    path: str
    icon: str
    key: str = ""
    across: bool = False


MENU: Final = (
    ("", (Entry("Overview", "/", "overview", "o", across=True),)),
    (
        "Jobs",
        (
            Entry("Jobs", "/ui/jobs", "jobs", "j"),
            Entry("Dead letters", "/ui/dead", "dead", "d"),
            Entry("Bulk operations", "/ui/bulk", "bulk", "u"),
            Entry("Run a job", "/ui/run", "run", "r"),
        ),
    ),
    (
        "Operations",
        (
            Entry("Queues", "/ui/queues", "queues", "q"),
            Entry("Breakers", "/ui/breakers", "breakers", "b"),
            Entry("Workers", "/ui/workers", "workers", "w"),
        ),
    ),
    (
        "Access",
        (
            Entry("Audit log", "/ui/audit", "audit", "a"),
            Entry("Keys", "/ui/keys", "keys", "k"),
        ),
    ),
)


class Group(NamedTuple):
    title: str
    entries: Sequence[Entry]


class Site:
    """`hosts` are the names that it answers to, besides those of this machine; none means any.
    `app` is how commands name the Holdfast object, if that is known."""

    def __init__(
        self, service: Service, hosts: Collection[str] = (), app: str | None = None
    ) -> None:
        self.service = service
        self.app = app or APP_PLACEHOLDER
        self.hosts = frozenset(each.lower() for each in hosts)
        self.sessions = Sessions(service.gate, service.hf._seam.now)
        self.live = Live(service)
        self.unattended = KeptByTenant(count_unattended, GROUPS_KEPT_SECONDS)
        self.static = static_files()
        self.templates = templates()
        self.systems = [make(service) for make in service.hf._pages]
        self.pages: list[Page] = []

    def add(self, registered: Iterable[Page]) -> None:
        """Add pages; on a database that is open for reading only, no forms that change it."""
        read_only = self.service.hf.settings.read_only
        self.pages.extend(
            page
            for page in registered
            if not read_only or page.method == "GET" or page.path in (LOGIN, LOGOUT)
        )

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route(static.PATH, self._answer_static, methods=["GET"]),
            *(PageRoute(self, page) for page in self.pages),
            PageRoute(self, Page("GET", "/ui/{rest:path}", "any", False, _show_nothing)),
        ]

    def menu(self, caller: Caller) -> Sequence[Group]:
        """The pages that this caller may open, in groups."""
        open_to = {each.path for each in self.pages if each.method == "GET" and each.allows(caller)}
        is_wide = caller.tenant is None
        groups = (
            Group(
                title,
                [each for each in entries if each.path in open_to and (is_wide or not each.across)],
            )
            for title, entries in (*MENU, ("Systems", self._systems_menu))
        )
        return [each for each in groups if each.entries]

    @property
    def _systems_menu(self) -> Sequence[Entry]:
        return [Entry(each.title, path_of(each), "systems") for each in self.systems]

    def is_at(self, entry: Entry, path: str) -> bool:
        """Whether the page at this path belongs to the entry."""
        return path == entry.path or path.startswith(f"{entry.path}/")

    def role(self, caller: Caller) -> str:
        """What the viewer may do, in a word or two."""
        role = next((role for scope, role in ROLES if scope in caller.scopes), "no access")
        return role if caller.tenant is None else f"{role} of {format.plain(caller.tenant)}"

    async def admit(self, request: Request, session: Session | None) -> Caller:
        """Return the caller, or raise a Problem: `key-missing` if it has to log in."""
        gate = self.service.gate
        if session is None:
            return await gate.admit_without_key(request)
        return await gate.admit_again(request, session.key_id)

    def show_problem(self, request: Request, problem: Problem) -> Response:
        """A page that tells what went wrong and what to do; to a script, as the API tells it."""
        if not wants_page(request):
            return problem.response(request.state.correlation_id)
        caller, session = getattr(request.state, "visitor", (None, None))
        visit = Visit(self, request, caller, session)
        response = visit.render(
            "problem.html",
            title=problem.kind.title,
            status=problem.kind.status,
            problem=problem,
            detail=masked(problem.detail),
            correlation_id=request.state.correlation_id,
        )
        for name in ("connection", "retry-after", "www-authenticate"):
            if name in problem.headers:
                response.headers[name] = problem.headers[name]
        return response

    async def _answer_static(self, request: Request) -> Response:
        try:
            check_host(request, self.hosts)
            response = await self.static.answer(request)
        except Problem as problem:
            response = problem.response(request.state.correlation_id)
        return secure(response)


async def _show_nothing(visit: Visit) -> Response:
    raise Problem("not-found", "there is no such page")


@cache
def static_files() -> static.Static:
    return static.Static(PACKAGE)


@cache
def templates() -> Environment:
    """All sites in a process share the templates, because each takes milliseconds to compile. Pages
    may add only filters and globals that mean the same for every site."""
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["static"] = static_files().url
    environment.globals["theme_of"] = _theme_of
    environment.globals["meter"] = charts.meter
    environment.filters.update(format.FILTERS)
    return environment


def _theme_of(request: Request) -> str:
    """The theme that the viewer chose, or "" for that of the system."""
    chosen: Any = request.cookies.get("holdfast-theme")
    return chosen if chosen in THEMES else ""


def make_site(service: Service, hosts: Collection[str] = (), app: str | None = None) -> Site:
    """Return the site with all pages. Its routes can still get more."""
    site = Site(service, hosts, app)
    for make in pages.ALL:
        site.add(make(site).registered)
    service.add_background(site.live.running)
    return site


def make_pages(
    service: Service, hosts: Collection[str] = (), app: str | None = None
) -> Sequence[BaseRoute]:
    """Return the routes of the dashboard: `make_api(hf, pages=make_pages)`."""
    return make_site(service, hosts, app).routes()
