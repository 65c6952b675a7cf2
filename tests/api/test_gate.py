"""The gate: who is let in with which key, and who without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.api import make_api
from holdfast.api.gate import Gate
from holdfast.api.limits import FAILED_KEYS_PER_SECOND, KEY_KEPT_SECONDS
from holdfast.domain.keys import NewKey
from holdfast.operations.pepper import VARIABLE
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from tests.operations.test_keys import execute
from tests.support.api import served
from tests.support.seams import HandSeam

ME = "/v1/me"


@pytest.fixture
def seam() -> HandSeam:
    return HandSeam()


@pytest.fixture
def app(local_url: str, seam: HandSeam) -> Holdfast:
    return Holdfast(local_url, seam=seam)


@pytest.fixture
def stored(store_url: str, seam: HandSeam) -> Holdfast:
    """For what depends on the database."""
    return Holdfast(store_url, seam=seam)


@pytest.fixture
async def client(app: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with served(app) as client:
        yield client


def bearing(key: NewKey | str) -> dict[str, str]:
    return {"authorization": f"Bearer {key if isinstance(key, str) else key.key}"}


async def test_without_keys_a_caller_on_this_machine_is_the_administrator(
    client: httpx.AsyncClient,
) -> None:
    mine = (await client.get(ME)).json()
    assert mine == {"name": "local", "scopes": ["admin", "enqueue", "operate", "read", "work"]}


async def test_from_the_first_key_on_every_request_needs_one(
    stored: Holdfast, seam: HandSeam
) -> None:
    async with served(stored) as client:
        assert (await client.get(ME)).status_code == 200
        key = await stored.keys.create("shop", scopes=["read"], tenant="acme")
        seam.seconds += KEY_KEPT_SECONDS
        refused = await client.get(ME)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        assert refused.json()["detail"].endswith("Authorization header: Bearer hfk_...")
        mine = (await client.get(ME, headers=bearing(key))).json()
        assert (mine["tenant"], mine["scopes"], mine["key_id"]) == ("acme", ["read"], key.id)
        await stored.keys.revoke(key.id)
        seam.seconds += KEY_KEPT_SECONDS
        assert (await client.get(ME)).status_code == 401


FROM_ELSEWHERE: tuple[tuple[dict[str, str], str], ...] = (
    ({"host": "attacker.example"}, "requests for the host"),
    ({"host": "attacker.example:8000"}, "requests for the host"),
    ({"host": "127.0.0.1.attacker.example"}, "requests for the host"),
    ({"origin": "http://attacker.example"}, "other sites"),
    ({"origin": "null"}, "other sites"),
    ({"origin": "http://127.0.0.1:1"}, "other sites"),
    ({"x-forwarded-for": "192.0.2.1"}, "through a proxy"),
    ({"forwarded": "for=192.0.2.1"}, "through a proxy"),
    ({"x-real-ip": "192.0.2.1"}, "through a proxy"),
    ({"x-forwarded-host": "jobs.example"}, "through a proxy"),
    ({"x-forwarded-proto": "https"}, "through a proxy"),
    ({"via": "1.1 proxy.example"}, "through a proxy"),
    ({"sec-fetch-site": "cross-site"}, "other sites"),
)


async def test_without_keys_neither_another_site_nor_a_proxy_gets_in(local_hf: Holdfast) -> None:
    async with served(local_hf) as client:
        for headers, reason in FROM_ELSEWHERE:
            for method in ("GET", "POST"):
                refused = await client.request(method, "/v1/keys", headers=headers)
                assert (refused.status_code, headers) == (403, headers)
                assert reason in refused.json()["detail"]


async def test_without_keys_the_names_of_this_machine_and_its_own_pages_get_in(
    local_hf: Holdfast,
) -> None:
    async with served(local_hf) as client:
        for host in ("localhost", "127.0.0.1", "[::1]", "holdfast.localhost"):
            own = f"{host}:{client.base_url.port}"
            page = {"host": own, "origin": f"http://{own}", "sec-fetch-site": "same-origin"}
            found = await client.get(ME, headers=page)
            assert (found.status_code, host) == (200, host)


async def test_without_keys_another_machine_does_not_get_in(local_hf: Holdfast) -> None:
    api = make_api(local_hf)
    for peer, server in (("192.0.2.1", "127.0.0.1"), ("127.0.0.1", "192.0.2.2")):
        transport = httpx.ASGITransport(api, client=(peer, 5))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{server}") as client:
            refused = await client.get(ME, headers={"host": "localhost"})
            assert refused.status_code == 403


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/jobs", "sqlite:////no/such/folder/x.db"])
async def test_a_database_that_can_not_be_reached_makes_nobody_an_administrator(url: str) -> None:
    async with served(Holdfast(url)) as client:
        for headers in ({}, bearing("hfk_" + "a" * 12 + "_" + "a" * 52)):
            refused = await client.get(ME, headers=headers)
            assert refused.status_code == 503
            assert refused.headers["retry-after"]


async def test_a_database_that_goes_away_makes_nobody_an_administrator(
    tmp_path: Path, seam: HandSeam
) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=seam)
    async with served(hf) as client:
        assert (await client.get(ME)).status_code == 200
        (tmp_path / "jobs.db").rename(tmp_path / "away.db")
        seam.seconds += KEY_KEPT_SECONDS
        assert (await client.get(ME)).status_code == 503


async def test_a_server_whose_tables_are_missing_serves_nobody(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, Seam())
    await store.migrate()
    await store.close()
    async with served(Holdfast(postgres_url)) as client:
        assert (await client.get(ME)).status_code == 503


async def test_unknown_expired_and_revoked_keys_get_the_same_answer(stored: Holdfast) -> None:
    async with served(stored) as client:
        expired = await stored.keys.create("expired", scopes=["read"])
        await execute(stored, "UPDATE holdfast.api_keys SET expires_at = created_at")
        revoked = await stored.keys.create("revoked", scopes=["read"])
        await stored.keys.revoke(revoked.id)
        good = (await stored.keys.create("good", scopes=["read"])).key
        wrong = good[:-1] + ("a" if good[-1] != "a" else "q")
        answers = []
        for text in (expired.key, revoked.key, wrong, good.upper(), "hfk_", f"{good} {good}"):
            refused = await client.get(ME, headers={**bearing(text), "x-correlation-id": "same"})
            answers.append((refused.status_code, refused.headers["www-authenticate"], refused.text))
        assert answers[0][:2] == (401, 'Bearer realm="holdfast", error="invalid_token"')
        assert len(set(answers)) == 1
        basic = await client.get(ME, headers={"authorization": f"Basic {good}"})
        assert basic.status_code == 401


async def test_two_keys_in_one_request_are_refused(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    made = [await app.keys.create(name, scopes=["read"]) for name in ("one", "other")]
    for first, second in ((0, 1), (1, 0), (0, 0)):
        headers = [
            (b"authorization", b"Bearer " + made[each].key.encode()) for each in (first, second)
        ]
        refused = await client.get(ME, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad-request")
        assert refused.json()["errors"][0]["parameter"] == "Authorization"


async def test_a_key_that_expires_is_refused_at_that_moment_though_it_was_just_read(
    app: Holdfast, seam: HandSeam, client: httpx.AsyncClient
) -> None:
    key = await app.keys.create("short", scopes=["read"], expires_in_seconds=1.5)
    assert (await client.get(ME, headers=bearing(key))).status_code == 200
    seam.seconds += 1.6
    assert (await client.get(ME, headers=bearing(key))).status_code == 401


async def test_a_revoked_key_is_refused_within_two_seconds(
    app: Holdfast, seam: HandSeam, client: httpx.AsyncClient
) -> None:
    key = await app.keys.create("shop", scopes=["read"])
    assert (await client.get(ME, headers=bearing(key))).status_code == 200
    await app.keys.revoke(key.id)
    seam.seconds += 2.0
    assert (await client.get(ME, headers=bearing(key))).status_code == 401


async def test_requests_at_the_same_time_read_a_key_once(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    key = await app.keys.create("shop", scopes=["read"])
    assert (await client.get(ME, headers=bearing(key))).status_code == 200
    await execute(app, "UPDATE holdfast.api_keys SET name = 'changed'")
    sent = (client.get(ME, headers=bearing(key)) for _ in range(20))
    names = {answer.json()["name"] for answer in await asyncio.gather(*sent)}
    assert names == {"shop"}  # none read it again


async def test_a_key_has_its_own_rate_limit(
    app: Holdfast, seam: HandSeam, client: httpx.AsyncClient
) -> None:
    slow = await app.keys.create("slow", scopes=["read"], requests_per_second=3)
    other = await app.keys.create("other", scopes=["read"])
    codes = [(await client.get(ME, headers=bearing(slow))).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]
    refused = await client.get(ME, headers=bearing(slow))
    assert refused.json()["code"] == "too-many-requests"
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit"] == '"default";r=0;t=1'
    assert refused.headers["ratelimit-policy"] == '"default";q=3;w=1'
    assert (await client.get(ME, headers=bearing(other))).status_code == 200
    seam.seconds += 1 / 3
    codes = [(await client.get(ME, headers=bearing(slow))).status_code for _ in range(2)]
    assert codes == [200, 429]


async def test_an_address_that_guesses_keys_is_slowed_down_but_valid_keys_from_it_are_not(
    local_url: str, seam: HandSeam
) -> None:
    app = Holdfast(local_url, seam=seam)
    key = await app.keys.create("shop", scopes=["read"])
    async with served(app) as client:
        assert (await client.get(ME, headers=bearing(key))).status_code == 200
        guesses = [f"hfk_{'a' * 12}_{number:052}".replace("0", "b") for number in range(30)]
        codes = [(await client.get(ME, headers=bearing(each))).status_code for each in guesses]
        assert codes == [401] * int(FAILED_KEYS_PER_SECOND) + [429] * 10
        seam.seconds += KEY_KEPT_SECONDS / 50
        assert (await client.get(ME, headers=bearing(key))).status_code == 200
        seam.seconds += 1
        assert (await client.get(ME, headers=bearing(guesses[-1]))).status_code == 401


async def test_no_log_or_error_shows_a_secret(
    app: Holdfast, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await client.post("/v1/keys", json={"name": "root", "scopes": ["admin", "read"]})
    text = made.json()["key"]
    secret = text.rpartition("_")[2]
    wrong = text[:-1] + ("a" if text[-1] != "a" else "q")
    bodies: list[Any] = [text, {"name": text}, {text: 1}]
    answers = [await client.get(f"/v1/keys/{text}", headers=bearing(text))]
    answers.append(await client.get(f"/v1/jobs/{text}", headers=bearing(text)))
    answers.append(await client.get(f"/v1/audit?after={text}", headers=bearing(text)))
    answers.append(await client.get("/v1/audit", headers=bearing(text)))
    answers += [await client.post("/v1/jobs", json=each, headers=bearing(text)) for each in bodies]
    answers += [await client.get(ME, headers=bearing(each)) for each in (wrong, f"{text}x")]
    for each in answers:
        assert secret[:-1] not in each.text
        assert secret[:-1] not in str(each.headers)
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith("http")]
    assert secret[:-1] not in "".join(ours)


async def test_the_secret_of_the_gate_is_the_same_in_every_process(store_url: str) -> None:
    secrets = []
    for _ in range(2):
        hf = Holdfast(store_url)
        api = make_api(hf)
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get(ME)).status_code == 200
        secrets.append(api.state.service.gate.secret)
        await hf.close()
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) == 32


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "api.example.com"])
async def test_a_server_without_keys_or_pepper_is_refused_on_any_other_address(
    local_hf: Holdfast, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(local_hf)
    monkeypatch.delenv(VARIABLE, raising=False)
    for each in ("127.0.0.1", "localhost", "::1"):
        await gate.check_open_to(each)
    with pytest.raises(ConfigurationError, match=f"needs {VARIABLE}.*token_urlsafe"):
        await gate.check_open_to(host)
    monkeypatch.setenv(VARIABLE, "p" * 32)
    with pytest.raises(ConfigurationError, match=r"without keys.*holdfast keys create"):
        await gate.check_open_to(host)
    await local_hf.keys.create("root", scopes=["admin"])
    gate = Gate(local_hf)
    await gate.check_open_to(host)
    monkeypatch.setenv(VARIABLE, "q" * 32)
    with pytest.raises(ConfigurationError, match="all keys were created with a different pepper"):
        await gate.check_open_to("127.0.0.1")
