"""Who gets in, how, and for how long."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.api.gate import Gate
from holdfast.api.limits import FAILED_KEYS_PER_SECOND, KEY_KEPT_SECONDS
from holdfast.dashboard.limits import SESSION_SECONDS
from holdfast.dashboard.sessions import COOKIE, Sessions
from holdfast.domain.keys import NewKey
from tests.operations.test_keys import execute
from tests.support.dashboard import LOGIN, Browser, LaterSeam, browsing

WRONG = f"hfk_{'a' * 12}_{'b' * 52}"


@pytest.fixture
def seam() -> LaterSeam:
    return LaterSeam()


@pytest.fixture
def hf(store_url: str, seam: LaterSeam) -> Holdfast:
    return Holdfast(store_url, seam=seam)


@pytest.fixture
async def key(hf: Holdfast) -> NewKey:
    return await hf.keys.create("ann", scopes=["read"])


@pytest.fixture
async def browser(hf: Holdfast, key: NewKey) -> AsyncIterator[Browser]:
    async with browsing(hf) as browser:
        yield browser


async def is_logged_in(browser: Browser) -> bool:
    answer = await browser.get("/")
    assert answer.status_code in (200, 303)
    if answer.status_code == 303:
        assert answer.headers["location"].startswith(LOGIN)
    return answer.status_code == 200


async def test_a_page_without_a_session_leads_to_the_login_and_then_back(
    browser: Browser, key: NewKey
) -> None:
    refused = await browser.get("/?tab=failed&x=1")
    assert (refused.status_code, refused.text) == (303, "")
    assert refused.headers["location"] == "/ui/login?next=%2F%3Ftab%3Dfailed%26x%3D1"
    form = await browser.get(refused.headers["location"])
    assert 'name="next" value="/?tab=failed&amp;x=1"' in form.text
    begun = await browser.log_in(key, "/?tab=failed&x=1")
    assert (begun.status_code, begun.headers["location"]) == (303, "/?tab=failed&x=1")
    assert await is_logged_in(browser)


async def test_scripts_and_streams_are_told_instead_of_led_to_the_login(browser: Browser) -> None:
    for path, headers in (
        ("/", {"x-live": "1"}),
        ("/ui/live", {"accept": "text/event-stream"}),
        ("/", {"accept": "*/*"}),
    ):
        refused = await browser.get(path, headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "key-missing")


async def test_the_cookie_is_for_this_host_and_https_and_not_for_scripts(
    browser: Browser, key: NewKey
) -> None:
    begun = await browser.log_in(key)
    name, _, attributes = begun.headers["set-cookie"].partition("=")
    assert name == "__Host-holdfast"
    assert {each.strip().lower() for each in attributes.split(";")[1:]} == {
        "httponly", "max-age=43200", "path=/", "samesite=lax", "secure",
    }  # fmt: skip
    assert key.key not in begun.text + str(begun.headers)
    payload = urlsafe_b64decode(browser.cookies[COOKIE].partition(".")[0] + "==").decode()
    assert (key.id in payload, key.key.rpartition("_")[2] in payload) == (True, False)


@pytest.mark.parametrize("text", [WRONG, "", "hfk_xyz", "'; DROP TABLE"])
async def test_a_wrong_key_shows_the_form_again(browser: Browser, text: str) -> None:
    refused = await browser.log_in(text, "/ui/nothing")
    assert refused.status_code == 401
    assert "This key is unknown, expired or revoked." in refused.text
    assert 'name="next" value="/ui/nothing"' in refused.text
    assert not text or text not in refused.text
    assert not browser.cookies


async def test_a_forged_cookie_is_no_session(browser: Browser, key: NewKey) -> None:
    await browser.log_in(key)
    genuine = browser.cookies[COOKIE]
    data, _, signature = genuine.partition(".")
    payload = urlsafe_b64decode(data + "==")
    for forged in (
        data,
        f"{data}.",
        f".{signature}",
        f"{data}.{signature[:-4]}AAAA",
        f"{encoded(payload.replace(key.id.encode(), b'a' * 12))}.{signature}",
        f"{encoded(payload.replace(b',1', b',9', 1))}.{signature}",
        f"{data}.{signature}.{signature}",
        "%%%.%%%",
        "A" * 10_000,
    ):
        assert forged != genuine
        browser.cookies[COOKIE] = forged
        assert not await is_logged_in(browser), forged
    browser.cookies[COOKIE] = genuine
    assert await is_logged_in(browser)


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


async def test_a_session_of_another_service_is_none_here(
    browser: Browser, key: NewKey, tmp_path: Path
) -> None:
    """Its secret is another one, even if a key there has the same ID."""
    async with browsing(Holdfast(f"sqlite:///{tmp_path / 'others.db'}")) as other:
        theirs = await other.client.get("/v1/me")
        assert theirs.status_code == 200
        created = await other.client.post("/v1/keys", json={"name": "bob", "scopes": ["read"]})
        await other.log_in(created.json()["key"])
        browser.cookies = other.cookies
        assert COOKIE in browser.cookies
        assert not await is_logged_in(browser)


async def test_a_session_signed_with_what_was_known_before_the_first_key_is_none(
    store_url: str, seam: LaterSeam
) -> None:
    """A server without a pepper and without keys signs with a secret that can be guessed. When the
    first key is created elsewhere, the server turns to the pepper."""
    async with Holdfast(store_url) as writer:
        await writer.migrate()
        reader = Holdfast(store_url, read_only=True, seam=seam)
        async with reader, browsing(reader) as browser:
            assert await is_logged_in(browser)
            guess, forged = Gate(reader), Response()
            await guess.find_secret()
            key = await writer.keys.create("ann", scopes=["read"])
            seam.pass_time(KEY_KEPT_SECONDS)
            Sessions(guess, seam.now).begin(forged, key)
            browser.cookies[COOKIE] = SimpleCookie(forged.headers["set-cookie"])[COOKIE].value
            assert not await is_logged_in(browser)
            await browser.log_in(key)
            assert await is_logged_in(browser)


async def test_a_notice_is_no_session(browser: Browser, key: NewKey) -> None:
    """What is signed for one purpose is worth nothing for another."""
    await browser.log_in(key)
    browser.cookies["__Host-holdfast-notice"] = browser.cookies[COOKIE]
    page = await browser.get("/")
    assert (page.status_code, key.id in page.text) == (200, False)


async def test_a_session_ends_after_twelve_hours(
    browser: Browser, key: NewKey, seam: LaterSeam
) -> None:
    await browser.log_in(key)
    seam.pass_time(SESSION_SECONDS - 5)
    assert await is_logged_in(browser)
    seam.pass_time(5)
    assert not await is_logged_in(browser)


async def test_a_session_ends_when_its_key_is_revoked(
    hf: Holdfast, browser: Browser, key: NewKey, seam: LaterSeam
) -> None:
    await browser.log_in(key)
    await hf.keys.revoke(key.id)
    seam.pass_time(KEY_KEPT_SECONDS)
    assert not await is_logged_in(browser)


async def test_a_session_ends_when_its_key_expires(
    hf: Holdfast, browser: Browser, key: NewKey, seam: LaterSeam
) -> None:
    await browser.log_in(key)
    await execute(hf, "UPDATE holdfast.api_keys SET expires_at = created_at")
    seam.pass_time(KEY_KEPT_SECONDS)
    assert not await is_logged_in(browser)


async def test_a_session_ends_at_the_moment_its_key_expires_though_the_key_was_just_read(
    hf: Holdfast, browser: Browser, seam: LaterSeam
) -> None:
    short = await hf.keys.create("short", scopes=["read"], expires_in_seconds=1.9)
    await browser.log_in(short)
    seam.pass_time(1.95)
    assert seam.seconds < 1000 + KEY_KEPT_SECONDS
    assert not await is_logged_in(browser)


async def test_a_session_ends_when_its_key_is_rotated_and_the_new_key_gets_in(
    hf: Holdfast, browser: Browser, key: NewKey, seam: LaterSeam
) -> None:
    await browser.log_in(key)
    new = await hf.keys.rotate(key.id)
    seam.pass_time(KEY_KEPT_SECONDS)
    assert not await is_logged_in(browser)
    refused = await browser.log_in(key)
    assert (refused.status_code, "This key was rotated." in refused.text) == (401, True)
    assert (await browser.log_in(new)).status_code == 303
    assert await is_logged_in(browser)


async def test_logging_out_deletes_the_cookie(browser: Browser, key: NewKey) -> None:
    await browser.log_in(key)
    ended = await browser.post("/ui/logout")
    assert (ended.status_code, ended.headers["location"]) == (303, "/ui/login?out=1")
    assert browser.cookies == {}
    assert "You are logged out." in (await browser.get("/ui/login?out=1")).text


@pytest.mark.parametrize(
    "next_path",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/ui/\\evil.example",
        "javascript:alert(1)",
        "/ui/logout",
        "/ui/login?next=/ui/login",
        "/v1/jobs",
        "/\t/evil.example",
        "/ui/x\r\nset-cookie: a=b",
        "/ui/" + "x" * 1000,
        "ui/jobs",
    ],
)
async def test_a_login_leads_to_pages_of_ours_only(
    browser: Browser, key: NewKey, next_path: str
) -> None:
    begun = await browser.log_in(key, next_path)
    assert (begun.status_code, begun.headers["location"]) == (303, "/")


async def test_an_address_that_guesses_keys_has_to_wait(browser: Browser, seam: LaterSeam) -> None:
    codes = [(await browser.log_in(WRONG)).status_code for _ in range(25)]
    assert codes == [401] * int(FAILED_KEYS_PER_SECOND) + [429] * 5
    refused = await browser.log_in(WRONG)
    assert refused.headers["retry-after"] == "1"
    assert "Too many requests with invalid keys" in refused.text
    seam.pass_time(1)
    assert (await browser.log_in(WRONG)).status_code == 401


async def test_logins_are_in_the_audit_log(hf: Holdfast, browser: Browser, key: NewKey) -> None:
    await browser.log_in(key)
    for text in (WRONG, "not even a key"):
        await browser.log_in(text)
    entries = (await hf.audit.list()).entries
    found = [
        (each.action, each.actor, each.outcome, each.key_id, each.target, each.address)
        for each in entries
        if each.action == "dashboard.login"
    ]
    assert found == [  # at most one failure per second
        ("dashboard.login", "unknown", "denied", None, "a" * 12, "127.0.0.1"),
        ("dashboard.login", "ann", "allowed", key.id, key.id, "127.0.0.1"),
    ]


async def test_no_log_shows_a_key_or_a_session(
    hf: Holdfast, browser: Browser, key: NewKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await browser.log_in(key)
    await browser.log_in(key.key[:-1])
    await browser.post(LOGIN, headers={"content-type": "text/plain"}, content=key.key)
    await browser.get(f"/ui/login?next=/{key.key}")
    nothing = await browser.get(f"/ui/{key.key}")
    secret = key.key.rpartition("_")[2]
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith("http")]
    session = browser.cookies[COOKIE]
    for text in (*ours, nothing.text):
        assert secret[:-1] not in text.replace(f"GET /ui/{key.key}", "")
        assert session not in text


async def test_without_keys_this_machine_needs_no_login(store_url: str) -> None:
    async with browsing(Holdfast(store_url)) as browser:
        page = await browser.get("/")
        assert (page.status_code, "administrator" in page.text) == (200, True)
        assert "/ui/logout" not in page.text
        shown = await browser.get("/ui/login?next=/ui/jobs")
        assert (shown.status_code, shown.headers["location"]) == (303, "/ui/jobs")


async def test_without_keys_neither_another_site_nor_a_proxy_gets_in(local_url: str) -> None:
    async with browsing(Holdfast(local_url)) as browser:
        for headers in (
            {"host": "attacker.example"},
            {"origin": "http://attacker.example"},
            {"x-forwarded-for": "192.0.2.1"},
            {"sec-fetch-site": "cross-site"},
        ):
            for path in ("/", "/ui/login", "/ui/live"):
                refused = await browser.get(path, headers)
                assert (path, refused.status_code) == (path, 403)
                assert "create one with: holdfast keys create" in refused.text


async def test_a_page_over_plain_http_says_that_no_session_will_last(browser: Browser) -> None:
    said = "your browser won&#39;t keep you logged in"
    for host, site, is_warned in (
        ("jobs.example.com", None, True),
        ("jobs.example.com", "none", False),  # browsers say this over HTTPS only
        ("localhost", None, False),
    ):
        form = await browser.get(LOGIN, {"host": host, "sec-fetch-site": site})
        assert (host, site, said in form.text) == (host, site, is_warned)
