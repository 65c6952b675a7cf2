"""Forms are accepted from our own pages only, and within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.dashboard import Pages, Site, Visit
from holdfast.dashboard.limits import FORM_BYTES_MAX, FORM_FIELDS_MAX, PUBLIC_FORM_BYTES_MAX
from tests.support.dashboard import LOGIN, Browser, browsing

FORM = "/ui/test/rename"
FORM_TYPE = "application/x-www-form-urlencoded"


class Renamed:
    """What the form of the test page did."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pages(self, _site: Site) -> Pages:
        pages = Pages()

        @pages.get("/ui/test/form", needs="read")
        async def show_form(visit: Visit) -> Response:
            token = visit.site.sessions.token(visit.session)
            return Response(f'<input type="hidden" name="csrf" value="{token}">')

        @pages.post(FORM, needs="operate")
        async def rename(visit: Visit) -> Response:
            form = await visit.form()
            self.names.append(form.get("name", ""))
            return visit.redirect("/", notice=f"Renamed to {form.get('name')}.")

        return pages


@pytest.fixture
def renamed() -> Renamed:
    return Renamed()


@pytest.fixture
async def browser(local_hf: Holdfast, renamed: Renamed) -> AsyncIterator[Browser]:
    """Logged in as an operator."""
    key = await local_hf.keys.create("ann", scopes=["read", "operate"])
    async with browsing(local_hf, renamed.pages) as browser:
        await browser.log_in(key)
        yield browser


async def test_a_form_of_our_own_page_is_accepted_and_its_notice_shown_once(
    browser: Browser, renamed: Renamed
) -> None:
    answer = await browser.post(FORM, {"name": "<b>Zoë</b> & co"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert renamed.names == ["<b>Zoë</b> & co"]
    live = await browser.get("/", {"x-live": "1"})  # only a page that is shown uses it up
    assert "Renamed" not in live.text
    assert "Renamed to &lt;b&gt;Zoë&lt;/b&gt; &amp; co." in (await browser.get("/")).text
    assert "Renamed" not in (await browser.get("/")).text


async def test_a_form_without_the_token_of_its_session_changes_nothing(
    local_hf: Holdfast, browser: Browser, renamed: Renamed
) -> None:
    own, mine = browser.token, dict(browser.cookies)
    other = await local_hf.keys.create("bob", scopes=["read", "operate"])
    browser.cookies.clear()
    await browser.log_in(other)
    theirs = browser.token
    browser.cookies = mine
    assert len({own, theirs}) == 2
    for token in ("", "x", theirs, own[:-1], own.upper(), f"{own} ", "é" * 64):
        browser.token = token
        answer = await browser.post(FORM, {"name": "x"})
        assert (token, answer.status_code) == (token, 403)
        assert "This form is out of date" in answer.text
    without = await browser.post(FORM, data={"name": "x"})
    assert without.status_code == 403
    assert renamed.names == []


async def test_two_logins_with_one_key_have_different_tokens(
    local_hf: Holdfast, browser: Browser
) -> None:
    key = await local_hf.keys.create("bob", scopes=["read"])
    tokens = set()
    for _ in range(2):
        browser.cookies.clear()
        await browser.log_in(key)
        tokens.add(browser.token)
    assert len(tokens) == 2


OTHERS: tuple[dict[str, str | None], ...] = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": ""},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": None, "origin": None},
    {"sec-fetch-site": None, "origin": "null"},
    {"sec-fetch-site": None, "origin": "https://evil.example"},
    {"sec-fetch-site": None, "origin": "http://127.0.0.1:1"},
)


@pytest.mark.parametrize("path", [FORM, LOGIN, "/ui/logout"])
async def test_a_form_of_another_site_is_refused_even_with_the_token(
    browser: Browser, renamed: Renamed, path: str
) -> None:
    for headers in OTHERS:
        answer = await browser.post(path, {"name": "x"}, headers)
        assert (headers, answer.status_code) == (headers, 403)
        assert "Forms of other sites are not accepted." in answer.text
    assert renamed.names == []


async def test_a_browser_that_tells_only_the_origin_is_accepted(
    browser: Browser, renamed: Renamed
) -> None:
    host = f"127.0.0.1:{browser.client.base_url.port}"
    for origin in (f"http://{host}", f"https://{host}"):  # a proxy may have ended the TLS
        answer = await browser.post(FORM, {"name": "x"}, {"sec-fetch-site": None, "origin": origin})
        assert answer.status_code == 303
    assert renamed.names == ["x", "x"]


async def test_a_body_that_is_no_form_or_too_large_is_refused(
    browser: Browser, renamed: Renamed
) -> None:
    token = browser.token.encode()
    form = {"content-type": FORM_TYPE}
    for headers, content, status in (
        ({"content-type": "application/json"}, b'{"name": "x"}', 400),
        ({"content-type": "text/plain"}, b"csrf=" + token, 400),
        ({"content-type": None}, b"csrf=" + token, 400),
        (form, b"csrf=" + token + b"&name=\xff", 400),
        (form, b"csrf=" + token + b"&name=%ff", 400),
        (form, b"csrf=" + token + b"&a=" * FORM_FIELDS_MAX, 400),
        (form, b"csrf=" + token + b"&name=" + b"x" * FORM_BYTES_MAX, 413),
    ):
        answer = await browser.post(FORM, headers=headers, content=content)
        assert (headers, answer.status_code) == (headers, status)
    assert renamed.names == []


async def test_the_login_reads_small_forms_only(browser: Browser) -> None:
    answer = await browser.post(LOGIN, {"key": "x" * PUBLIC_FORM_BYTES_MAX})
    assert answer.status_code == 413


async def test_a_forms_page_can_not_be_opened_with_a_click(
    browser: Browser, renamed: Renamed
) -> None:
    answer = await browser.get(FORM)
    assert (answer.status_code, renamed.names) == (404, [])


async def test_without_keys_forms_have_a_token_too(local_url: str, renamed: Renamed) -> None:
    async with browsing(Holdfast(local_url), renamed.pages) as browser:
        assert (await browser.post(FORM, {"name": "x"})).status_code == 403
        await browser.get("/ui/test/form")
        assert (await browser.post(FORM, {"name": "y"})).status_code == 303
        assert renamed.names == ["y"]


async def test_a_notice_can_not_be_forged_or_taken_over(
    local_hf: Holdfast, browser: Browser
) -> None:
    await browser.post(FORM, {"name": "Zoë"})
    name = "__Host-holdfast-notice"
    genuine = browser.cookies[name]
    other = await local_hf.keys.create("bob", scopes=["read"])
    browser.cookies.clear()
    await browser.log_in(other)
    for forged in (genuine, genuine[:-4] + "AAAA", "U2VuZCBtb25leQ.AAAA", "x"):
        browser.cookies[name] = forged
        page = await browser.get("/")
        assert (page.status_code, 'class="notice ' in page.text) == (200, False)
