"""Every page, by every role, of one tenant and of all: cell by cell."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import product

import httpx
import pytest

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.dashboard.page import PageRoute
from holdfast.dashboard.site import make_pages
from holdfast.domain.keys import ADMIN
from tests.dashboard.matrix import ADMINISTRATOR, OPERATOR, PAGES, ROLES, Row
from tests.support.access import OTHER, OWN, World
from tests.support.dashboard import LOGIN, Browser, browsing
from tests.support.roles import installed_roles
from tests.support.running import QUICK

KEYS = [
    (role, tenant)
    for role, tenant in product(ROLES, (OWN, None))
    if not (ADMIN in role and tenant)  # there are no such keys
]


@pytest.fixture
async def world(store_url: str) -> AsyncIterator[World]:
    hf = Holdfast(store_url, **QUICK)
    async with browsing(hf) as browser:
        world = World(hf, browser.client)
        await world.key("read", tenant=OWN)  # from the first key on, everybody has to log in
        yield world


def test_every_page_has_a_row(local_url: str) -> None:
    api = make_api(Holdfast(local_url), pages=make_pages)
    routes = [each.page for each in api.routes if isinstance(each, PageRoute)]
    assert {f"{each.method} {each.path}" for each in routes} == {*PAGES}, (
        "see tests/dashboard/matrix.py"
    )


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_open_to_those_who_may_see_it_and_to_nobody_else(
    world: World, name: str
) -> None:
    row = PAGES[name]
    nobody = await send(Browser(world.client), name, row, await target_of(world, row, OWN))
    assert nobody.status_code in (row.statuses if row.least is None else (303, 401)), nobody.text
    if row.least is not None and nobody.status_code == 303:
        assert nobody.headers["location"].startswith(LOGIN)
    for role, tenant in KEYS:
        browser = await logged_in(world, role, tenant)
        answer = await send(browser, name, row, await target_of(world, row, OWN))
        wanted = row.statuses if may(row, role, tenant) else (403,)
        assert answer.status_code in wanted, (role, tenant, answer.status_code, answer.text)


@pytest.mark.parametrize("name", [name for name, row in PAGES.items() if row.owned])
async def test_what_belongs_to_another_tenant_does_not_exist(world: World, name: str) -> None:
    row = PAGES[name]
    for role in ROLES:
        if ADMIN in role or not may(row, role, OWN):
            continue
        browser = await logged_in(world, role, OWN)
        theirs = await target_of(world, row, OTHER)
        before = await world.snapshot(OTHER)
        answer = await send(browser, name, row, theirs)
        assert answer.status_code == 404, (role, answer.text)
        assert (await world.snapshot(OTHER) == before) is True


async def test_every_page_works_on_the_role_of_the_api(postgres_url: str) -> None:
    async with installed_roles(postgres_url) as roles:
        hf = Holdfast(roles.url("api"), **QUICK)
        async with browsing(hf) as browser:
            world = World(hf, browser.client)
            for role, tenant in ((ADMINISTRATOR, None), (OPERATOR, OWN)):
                visitor = await logged_in(world, role, tenant)
                for name, row in PAGES.items():
                    if may(row, role, tenant) and name != "POST /ui/logout":
                        target = await target_of(world, row, OWN)
                        answer = await send(visitor, name, row, target)
                        assert answer.status_code in row.statuses, (name, tenant, answer.text)


def may(row: Row, role: tuple[str, ...], tenant: str | None) -> bool:
    if row.least is None:
        return True
    if row.across and tenant:
        return False
    return row.scope in role if row.scope else ROLES.index(role) >= ROLES.index(row.least)


async def logged_in(world: World, role: tuple[str, ...], tenant: str | None) -> Browser:
    browser = Browser(world.client)
    await browser.log_in(await world.key(*role, tenant=tenant))
    return browser


async def target_of(world: World, row: Row, tenant: str) -> str:
    return "" if row.target is None else str(await row.target(world, tenant))


async def send(browser: Browser, name: str, row: Row, target: str) -> httpx.Response:
    """Send the request. Of an event stream, only the head is read."""
    method, _, path = name.partition(" ")
    path = re.sub(r"\{.*?\}", target or "nothing", path) + row.query.replace("TARGET", target)
    if method == "POST":
        fields = {field: text.replace("TARGET", target) for field, text in row.fields.items()}
        return await browser.post(path, fields)
    return await browser.get(path)
