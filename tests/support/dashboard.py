"""A browser for the dashboard, as far as tests of the server need one: it keeps cookies, says where
its requests come from, and sends the tokens of forms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from http.cookies import SimpleCookie
from typing import Any

import httpx
from starlette.routing import BaseRoute

from holdfast import Holdfast
from holdfast.api import Service
from holdfast.api.streams import EVENT_STREAM
from holdfast.dashboard import Pages, Site
from holdfast.dashboard.site import make_site
from holdfast.domain.keys import NewKey
from tests.support.api import served
from tests.support.seams import HandSeam

LOGIN = "/ui/login"
_TOKEN = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class LaterSeam(HandSeam):
    """A test moves both of its clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.later_seconds = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.later_seconds)

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.later_seconds += seconds


class Browser:
    """Each request has the headers of a click or a form on a page of the same site, and those that
    are given; a header that is given as None is left out."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.cookies: dict[str, str] = {}
        self.token = ""  # of the last page that had one

    async def get(
        self, path: str, headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        return await self._send("GET", path, {"sec-fetch-site": "none", **(headers or {})})

    async def post(
        self,
        path: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> httpx.Response:
        own = str(self.client.base_url).rstrip("/")
        sent = {"sec-fetch-site": "same-origin", "origin": own, **(headers or {})}
        options = options or {"data": {"csrf": self.token, **(fields or {})}}
        return await self._send("POST", path, sent, **options)

    async def log_in(
        self, key: NewKey | str, next_path: str = "/", *, first_page: str = "/"
    ) -> httpx.Response:
        """Post the form of the login, and read a page, which has a token."""
        text = key if isinstance(key, str) else key.key
        answer = await self.post(LOGIN, {"key": text, "next": next_path})
        if answer.status_code == 303:
            page = await self.get(first_page)
            if page.status_code == 303:
                await self.get(page.headers["location"])
        return answer

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str | None], **options: Any
    ) -> httpx.Response:
        cookies = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        asked = {"accept": "text/html,*/*;q=0.8", "cookie": cookies or None, **headers}
        given = {name: text for name, text in asked.items() if text is not None}
        answer = await self._answer(method, path, given, options)
        for line in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies.pop(name, None)
                if morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
        if found := _TOKEN.search(answer.text):
            self.token = found[1]
        return answer

    async def _answer(
        self, method: str, path: str, headers: Mapping[str, str], options: Mapping[str, Any]
    ) -> httpx.Response:
        """The whole answer, but of an event stream only the head."""
        async with self.client.stream(method, path, headers=headers, **options) as answer:
            if answer.headers.get("content-type", "").startswith(EVENT_STREAM):
                return httpx.Response(answer.status_code, headers=answer.headers)
            await answer.aread()
            return answer


def with_pages(
    *others: Callable[[Site], Pages], hosts: Sequence[str] = (), app: str | None = None
) -> Callable[[Service], Sequence[BaseRoute]]:
    """What `make_api` takes as `pages`: the dashboard's, and those of the test."""

    def make(service: Service) -> Sequence[BaseRoute]:
        site = make_site(service, hosts, app)
        for other in others:
            site.add(other(site).registered)
        return site.routes()

    return make


@asynccontextmanager
async def browsing(
    hf: Holdfast,
    *others: Callable[[Site], Pages],
    hosts: Sequence[str] = (),
    app: str | None = None,
    **options: Any,
) -> AsyncIterator[Browser]:
    """Serve the dashboard, with other pages; the block gets a browser."""
    async with served(hf, pages=with_pages(*others, hosts=hosts, app=app), **options) as client:
        yield Browser(client)
