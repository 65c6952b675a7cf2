"""What every response tells the browser, and the hosts that the dashboard answers to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from holdfast import Holdfast
from tests.support.dashboard import LOGIN, Browser, browsing

WANTED = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@pytest.fixture
async def browser(local_hf: Holdfast) -> AsyncIterator[Browser]:
    key = await local_hf.keys.create("ann", scopes=["read"])
    async with browsing(local_hf) as browser:
        await browser.log_in(key)
        yield browser


def policy_of(answer: httpx.Response) -> dict[str, str]:
    parts = answer.headers["content-security-policy"].split(";")
    return {name: rest for name, _, rest in (part.strip().partition(" ") for part in parts)}


async def test_every_response_forbids_inline_code_frames_and_caches(browser: Browser) -> None:
    answers = [
        await browser.get("/"),
        await browser.get(LOGIN),
        await browser.post(LOGIN, {"key": "wrong"}),
        await browser.post("/ui/logout", {}, {"sec-fetch-site": "cross-site"}),
        await browser.get("/ui/nothing"),
        await browser.get("/ui/static/x/nothing.js"),
        await browser.post("/ui/logout"),
    ]
    browser.cookies.clear()
    answers += [await browser.get("/"), await browser.get("/ui/nothing", {"x-live": "1"})]
    assert [each.status_code for each in answers] == [200, 200, 401, 403, 404, 404, 303, 303, 401]
    for answer in answers:
        assert {name: answer.headers[name] for name in WANTED} == WANTED
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-correlation-id"]
        policy = policy_of(answer)
        assert (policy["default-src"], policy["frame-ancestors"]) == ("'none'", "'none'")
        assert (policy["base-uri"], policy["form-action"]) == ("'none'", "'self'")
        assert (policy["script-src"], policy["style-src"]) == ("'self'", "'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_no_page_has_inline_code_or_loads_from_elsewhere(browser: Browser) -> None:
    for path in ("/", LOGIN, "/ui/nothing"):
        page = (await browser.get(path)).text
        inline = set(re.findall(r"<script(?![^>]* src=)[^>]*>", page))
        assert inline <= {'<script type="application/json">'}  # data, which is never run
        assert re.findall(r"\son\w+=|\sstyle=|javascript:", page) == []
        sources = re.findall(r'(?:src|href|action)="([^"]*)"', page)
        assert sources
        assert [each for each in sources if not re.match(r"/(?!/)|#", each)] == []


async def test_styles_and_scripts_are_kept_for_good_and_change_their_url_instead(
    browser: Browser,
) -> None:
    page = (await browser.get("/")).text
    files = re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', page)
    assert len(files) >= 3
    browser.cookies.clear()  # the login needs them, too
    for url in files:
        answer = await browser.get(url)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        old = await browser.get(re.sub("/static/[0-9a-f]+/", "/static/0123/", url))
        assert (old.status_code, old.headers["cache-control"]) == (200, "no-store")
        assert old.content == answer.content


@pytest.mark.parametrize("name", ["..%2Fsite.py", "%2e%2e/site.py", "app.css%00", "site.py"])
async def test_no_other_file_is_served(browser: Browser, name: str) -> None:
    answer = await browser.get(f"/ui/static/x/{name}")
    assert answer.status_code == 404


async def test_with_a_list_of_hosts_no_other_name_is_answered_to(local_hf: Holdfast) -> None:
    await local_hf.keys.create("ann", scopes=["read"])
    async with browsing(local_hf, hosts=["Jobs.example.com"]) as browser:
        css = re.search(r"/ui/static/[^\"]+css", (await browser.get(LOGIN)).text)
        assert css
        for host, status in (
            ("jobs.example.com", 200),
            ("JOBS.example.com:8443", 200),
            ("localhost:8000", 200),
            ("127.0.0.1", 200),
            ("[::1]:8000", 200),
            ("evil.example", 403),
            ("jobs.example.com.evil.example", 403),
            ("jobs.example.com@evil.example", 403),
            ("[", 403),
        ):
            for path in (LOGIN, css[0]):
                answer = await browser.get(path, {"host": host})
                assert (host, path, answer.status_code) == (host, path, status)
        api = await browser.client.get("/v1/health/live", headers={"host": "evil.example"})
        assert api.status_code == 200
