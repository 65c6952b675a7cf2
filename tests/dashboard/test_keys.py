"""/ui/keys: a key is shown once, on the page that made it, and nowhere else."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from holdfast import Holdfast
from holdfast.domain.keys import NewKey
from tests.support.dashboard import Browser, browsing

TEXT = re.compile(r"hfk_[a-z2-7]{12}_[a-z2-7]{52}")
NEW = {"name": "shop", "scopes": ["read", "enqueue"], "tenant": "acme"}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
async def browser(local_hf: Holdfast) -> AsyncIterator[Browser]:
    async with browsing(local_hf) as browser:
        await browser.log_in(await local_hf.keys.create("root", scopes=["admin"]))
        yield browser


async def create(browser: Browser, **entered: object) -> httpx.Response:
    await browser.get("/ui/keys/new")
    fields = {"csrf": browser.token} | NEW | entered
    return await browser.post("/ui/keys", data=fields)


def key_on(answer: httpx.Response) -> str:
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    (text,) = set(TEXT.findall(answer.text))
    return str(text)


async def works(browser: Browser, text: str) -> bool:
    headers = {"authorization": f"Bearer {text}"}
    return (await browser.client.get("/v1/me", headers=headers)).status_code == 200


async def test_a_key_is_created_shown_once_rotated_and_revoked(
    local_hf: Holdfast, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    first = key_on(await create(browser, expires_in_seconds="86400", requests_per_second="5"))
    assert await works(browser, first)
    (key,) = [each for each in await local_hf.keys.list() if each.name == "shop"]
    assert (key.tenant, key.scopes, key.requests_per_second) == ("acme", ("read", "enqueue"), 5)
    assert key.created_by == "root"
    assert key.expires_at is not None
    rotated = await browser.post(f"/ui/keys/{key.id}/rotate", {"overlap_seconds": "0"})
    second = key_on(rotated)
    assert second != first
    (new,) = [each for each in await local_hf.keys.list() if each.name == "shop"]
    revoked = await browser.post(f"/ui/keys/{new.id}/revoke")
    assert (revoked.status_code, revoked.headers["location"]) == (303, "/ui/keys")
    pages = [await browser.get(path) for path in ("/ui/keys", "/ui/keys?ended=true", "/ui/audit")]
    assert "The key shop is revoked." in pages[0].text
    assert key.id in pages[1].text
    for action in ("key.create", "key.rotate", "key.revoke"):
        assert action in pages[2].text
    entries = str((await local_hf.audit.list()).entries)
    logged = "\n".join(f"{each.getMessage()} {vars(each)}" for each in caplog.records)
    for text in (first, second):
        secret = text.rpartition("_")[2]
        for place in (*(page.text for page in pages), entries, logged):
            assert secret not in place


@pytest.mark.parametrize(
    ("entered", "problem"),
    [
        ({"name": ""}, "enter a name"),
        ({"name": "a\x1bb"}, "contains the character"),
        ({"scopes": []}, "choose at least one scope"),
        ({"scopes": ["all"]}, "Invalid enum value"),
        ({"scopes": ["admin"]}, "covers the keys of all tenants"),
        ({"expires_in_seconds": "soon"}, "Expected"),
        ({"expires_in_seconds": "0"}, "&gt;= 1"),
        ({"expires_in_seconds": "nan"}, "&gt;= 1"),
        ({"requests_per_second": "-1"}, "&gt;= 0.01"),
        ({"tenant": "a" * 201}, "length"),
    ],
)
async def test_a_key_that_can_not_be_is_explained_and_not_created(
    local_hf: Holdfast, browser: Browser, entered: dict[str, object], problem: str
) -> None:
    answer = await create(browser, **entered)
    assert answer.status_code == 422, answer.text
    assert problem in answer.text
    assert TEXT.search(answer.text) is None
    assert [each.name for each in await local_hf.keys.list()] == ["root"]


async def test_names_of_keys_are_shown_as_text(browser: Browser) -> None:
    key_on(await create(browser, name=HOSTILE, tenant=HOSTILE))
    for path in ("/ui/keys", "/ui/audit"):
        assert HOSTILE not in (await browser.get(path)).text
    assert "&lt;script&gt;" in (await browser.get("/ui/keys")).text


async def test_a_key_that_is_gone_is_explained(local_hf: Holdfast, browser: Browser) -> None:
    assert (await browser.post("/ui/keys/nothing/revoke")).status_code == 404
    assert (await browser.post("/ui/keys/nothing/rotate")).status_code == 404
    key = await local_hf.keys.create("a", scopes=["read"])
    await local_hf.keys.revoke(key.id)
    assert (await browser.post(f"/ui/keys/{key.id}/rotate")).status_code == 409
    wrong = await browser.post(f"/ui/keys/{key.id}/rotate", {"overlap_seconds": "-1"})
    assert wrong.status_code == 400


async def test_the_first_key_warns_that_everybody_needs_one_from_then_on(
    local_hf: Holdfast,
) -> None:
    async with browsing(local_hf) as browser:
        assert "No keys yet" in (await browser.get("/ui/keys")).text
        page = (await browser.get("/ui/keys/new")).text
        assert "This is the first key" in page
        assert "Give it the scope admin" in page  # nobody is locked out of the keys by surprise
        made: NewKey = await local_hf.keys.create("root", scopes=["admin"])
        await browser.log_in(made)
        assert "This is the first key" not in (await browser.get("/ui/keys/new")).text
        page = (await browser.get("/ui/keys")).text
        assert "You are logged in with this key and will be logged out" in page
        assert "You are logged in with this key, so log in with the new one" in page
