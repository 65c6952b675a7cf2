"""/v1/keys, /v1/me and /v1/audit over a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.domain.keys import NewKey
from holdfast.operations.pepper import VARIABLE
from tests.support.access import bearing
from tests.support.api import served

LONG_AGO = "1066-10-14T09:00:00Z"
NEW = {"name": "shop", "scopes": ["enqueue", "read"], "tenant": "acme"}


@pytest.fixture
async def root(hf: Holdfast) -> NewKey:
    return await hf.keys.create("root", scopes=["admin"])


@pytest.fixture
async def client(hf: Holdfast, root: NewKey) -> AsyncIterator[httpx.AsyncClient]:
    async with served(hf) as client:
        client.headers.update(bearing(root))
        yield client


async def test_a_key_is_created_shown_once_rotated_and_revoked(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/keys", json={**NEW, "expires_in_seconds": 3600})
    assert made.status_code == 201
    key = made.json()
    assert (key["name"], key["tenant"], key["scopes"]) == ("shop", "acme", ["read", "enqueue"])
    mine = {"authorization": f"Bearer {key.pop('key')}"}
    assert (await client.get(made.headers["location"])).json() == key
    assert (await client.get("/v1/me", headers=mine)).json() == {
        "name": "shop", "key_id": key["id"], "tenant": "acme", "scopes": ["enqueue", "read"],
        "expires_at": key["expires_at"], "requests_per_second": 1000.0,
    }  # fmt: skip
    path = f"/v1/keys/{key['id']}"
    new = await client.post(f"{path}/rotate", json={"overlap_seconds": 60})
    assert new.status_code == 201
    assert (await client.get("/v1/me", headers=mine)).status_code == 200
    again = await client.post(f"{path}/rotate", json={})
    assert (again.status_code, again.json()["code"]) == (409, "wrong-state")
    gone = await client.delete(f"/v1/keys/{new.json()['id']}")
    assert gone.json()["revoked_at"]
    listed = (await client.get("/v1/keys")).json()["keys"]
    assert {each["name"] for each in listed} == {"root", "shop"}
    assert "key" not in str([set(each) for each in listed])
    ended = (await client.get("/v1/keys", params={"ended": "true"})).json()["keys"]
    assert len(ended) == len(listed) + 1


BAD: tuple[tuple[Any, str | None], ...] = (
    ({"scopes": ["read"]}, ""),
    ({"name": "x"}, ""),
    ({**NEW, "scopes": []}, "/scopes"),
    ({**NEW, "scopes": ["reed"]}, "/scopes/0"),
    ({**NEW, "scopes": ["admin"]}, None),
    ({**NEW, "name": "a\nb"}, None),
    ({**NEW, "tenant": ""}, "/tenant"),
    ({**NEW, "expires_in_seconds": 0}, "/expires_in_seconds"),
    ({**NEW, "requests_per_second": -1}, "/requests_per_second"),
    ({**NEW, "hash": "x"}, "/hash"),
)


async def test_a_key_that_makes_no_sense_is_400_and_says_where(client: httpx.AsyncClient) -> None:
    for body, pointer in BAD:
        refused = await client.post("/v1/keys", json=body)
        assert (body, refused.status_code) == (body, 400)
        if pointer is not None:
            assert refused.json()["errors"][0].get("pointer", "") == pointer
    assert len((await client.get("/v1/keys")).json()["keys"]) == 1


async def test_an_answer_with_a_secret_is_never_kept_for_an_idempotency_key(
    hf: Holdfast, client: httpx.AsyncClient, root: NewKey
) -> None:
    for path, body in (("/v1/keys", NEW), (f"/v1/keys/{root.id}/rotate", {})):
        refused = await client.post(path, json=body, headers={"idempotency-key": "k"})
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["parameter"] == "Idempotency-Key"
    assert [each.id for each in await hf.keys.list()] == [root.id]


async def test_an_unknown_key_is_404(client: httpx.AsyncClient) -> None:
    for key_id in ("a2b3c4d5e6f7", "nope", "%00", "%F0%9F%94%91"):
        path = f"/v1/keys/{key_id}"
        rotated = await client.post(f"{path}/rotate", json={})
        codes = [(await client.get(path)).status_code, (await client.delete(path)).status_code]
        assert [*codes, rotated.status_code] == [404, 404, 404]


async def test_the_audit_log_is_paged_and_tells_who_from_where(
    client: httpx.AsyncClient, root: NewKey
) -> None:
    for number in range(5):
        await client.post(
            "/v1/keys", json={**NEW, "name": f"k{number}"}, headers={"x-correlation-id": "deploy-7"}
        )
    found: list[dict[str, Any]] = []
    following: str | None = "/v1/audit?action=key.create&limit=2"
    pages = 0
    while following is not None:
        page = await client.get(following)
        found += page.json()["entries"]
        following = page.json()["next"]
        assert (following is None) == ("link" not in page.headers)
        pages += 1
    assert (pages, len(found)) == (3, 6)
    newest = found[0]
    assert (newest["actor"], newest["key_id"], newest["address"], newest["correlation_id"]) == (
        "root", root.id, "127.0.0.1", "deploy-7",
    )  # fmt: skip
    since, until = found[2]["at"], found[0]["at"]
    between = await client.get("/v1/audit", params={"since": since, "until": until})
    assert [each["id"] for each in between.json()["entries"]] == [each["id"] for each in found[1:3]]
    assert (await client.get("/v1/audit?outcome=failed")).json()["entries"] == []
    for wrong in ({"who": "root"}, {"outcome": "good"}, {"since": "2h"}, {"until": LONG_AGO}):
        assert (await client.get("/v1/audit", params=wrong)).status_code == 400
    other = await client.get("/v1/audit?limit=1")
    cursor = other.json()["next"].partition("cursor=")[2]
    assert (await client.get(f"/v1/audit?actor=root&cursor={cursor}")).status_code == 400


async def test_a_server_without_a_usable_pepper_does_not_blame_the_caller(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "short")
    async with served(hf) as client:
        refused = await client.post("/v1/keys", json=NEW)
    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert "short" not in refused.text
