"""Encrypted jobs over HTTP: in clear for callers of a server with the key, and nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from holdfast import Holdfast, Reason, Retry, State
from holdfast.domain.encrypted_jobs import ENCRYPTED
from holdfast.domain.encryption import make_keys
from holdfast.domain.texts import WITHHELD
from holdfast.operations.secrets import VARIABLE
from tests.support.api import served
from tests.support.dumping import dump, found
from tests.support.events import streaming
from tests.support.leasing import end, take
from tests.support.running import QUICK

CARD = "4000-0566-5566-5556-canary"
MARK = {"encrypted": True, "key": "k1"}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(VARIABLE, make_keys("k1"))
    return monkeypatch


def lose_key(keys: pytest.MonkeyPatch) -> None:
    keys.setenv(VARIABLE, make_keys("k2"))


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    hf = make_app(store_url)
    async with hf:
        yield hf


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url, **QUICK)

    @hf.job(executor="remote", encrypted=True, retry=Retry.none())
    def charge(card: str) -> Any: ...

    return hf


async def enqueue(client: httpx.AsyncClient, card: str = CARD, **headers: str) -> httpx.Response:
    body = {"name": "charge", "arguments": {"card": card}}
    return await client.post("/v1/jobs", json=body, headers=headers)


async def test_a_worker_over_http_gets_and_returns_values_in_clear(
    hf: Holdfast, store_url: str, keys: pytest.MonkeyPatch
) -> None:
    async with served(hf) as client:
        made = (await enqueue(client)).json()
        assert (made["arguments"], made["encrypted"]) == ({"card": CARD}, True)
        path = f"/v1/jobs/{made['id']}"
        (lease,) = await take(client)
        assert lease["arguments"] == {"card": CARD}
        renewal = {"leases": [{"lease_id": lease["lease_id"], "progress": [CARD]}]}
        async with streaming(client, f"{path}/events") as stream:
            await stream.until("state", state="running")
            answer = await client.post("/v1/leases/renew", json=renewal)
            assert answer.json()["leases"][0]["status"] == "ok"
            told = await stream.until("progress")
            assert told.data["progress"] == [CARD]
            for _ in range(2):  # a repeated outcome gets the same answer
                ended = await end(client, lease, status="succeeded", result={"paid by": CARD})
                assert ended.json()["state"] == State.SUCCEEDED
        assert (await client.get(f"{path}/result")).json()["result"] == {"paid by": CARD}
        lose_key(keys)
        seen = (await client.get(path)).json()
        assert [seen["arguments"], seen["progress"], seen["result"]] == [MARK] * 3
        assert (await client.get(f"{path}/result")).json()["result"] == MARK
        assert (await client.get("/v1/jobs")).json()["jobs"] == [seen]
        (name,) = (await client.get("/v1/names")).json()["names"]
        assert name["encrypted"]
    assert found(CARD, dump(store_url)) == []


async def test_the_error_that_a_worker_reports_is_withheld(hf: Holdfast, store_url: str) -> None:
    async with served(hf) as client:
        job_id = (await enqueue(client)).json()["id"]
        (lease,) = await take(client)
        outcome = {"status": "failed", "code": "BLOCKED", "text": f"{CARD} is blocked"}
        for _ in range(2):
            assert (await end(client, lease, **outcome)).json()["state"] == State.DEAD
        assert (await end(client, lease, **outcome | {"code": "OTHER"})).status_code == 409
        seen = (await client.get(f"/v1/jobs/{job_id}")).json()
        assert (seen["error_code"], seen["error_text"]) == ("BLOCKED", WITHHELD)
    assert found(CARD, dump(store_url)) == []


async def test_a_server_without_the_key_refuses_and_hands_back(
    local_url: str, keys: pytest.MonkeyPatch
) -> None:
    async with make_app(local_url) as hf, served(hf) as client:
        job_id = (await enqueue(client)).json()["id"]
        lose_key(keys)
        assert await take(client) == []
        why = await hf.jobs.why(next(iter((await hf.jobs.list()).jobs)).id)
        assert why.code is Reason.HANDED_BACK
        assert "the secret key 'k1' is unknown here" in why.sentence
        keys.setenv(VARIABLE, "none")
        refused = await enqueue(client)
        assert refused.status_code == 400
        assert "charge is encrypted" in refused.json()["detail"]
        await client.post(f"/v1/jobs/{job_id}/cancel", json={})
        body = {"arguments": {"card": CARD}}
        refused = await client.post(f"/v1/jobs/{job_id}/requeue", json=body)
        assert refused.status_code == 400
        requeued = await client.post(f"/v1/jobs/{job_id}/requeue", json={})
        assert requeued.json()["arguments"] == MARK


async def test_a_repeated_request_gets_its_response_from_an_encrypted_row(
    hf: Holdfast, store_url: str
) -> None:
    async with served(hf) as client:
        made = (await enqueue(client, **{"idempotency-key": "a"})).json()
        again = await enqueue(client, **{"idempotency-key": "a"})
        assert (again.status_code, again.json()["arguments"]) == (200, {"card": CARD})
        assert (await enqueue(client, "other", **{"idempotency-key": "a"})).status_code == 422
        path, new = f"/v1/jobs/{made['id']}", {"arguments": {"card": f"{CARD}-2"}}
        await client.post(f"{path}/cancel", json={}, headers={"idempotency-key": "b"})
        first, second = [
            await client.post(f"{path}/requeue", json=new, headers={"idempotency-key": "c"})
            for _ in range(2)
        ]
        assert first.json()["arguments"] == new["arguments"]
        assert second.content == first.content
        assert second.headers["idempotency-replayed"] == "true"
        other = {"arguments": {"card": "other"}}
        conflict = await client.post(
            f"{path}/requeue", json=other, headers={"idempotency-key": "c"}
        )
        assert conflict.status_code == 422
        batch = {"jobs": [{"name": "charge", "arguments": {"card": CARD}}]}
        await client.post("/v1/jobs/batch", json=batch, headers={"idempotency-key": "d"})
        bulk = {"action": "cancel", "ids": [first.json()["id"]]}
        preview = await client.post("/v1/bulk", json=bulk, headers={"idempotency-key": "e"})
        assert preview.json()["sample"][0]["arguments"] == new["arguments"]
    requeued = await stored(hf, "c")
    for row in [requeued, *[await stored(hf, key) for key in "bde"]]:
        assert row.body.startswith(ENCRYPTED)
    content = f'{{"arguments":{{"card":"{CARD}-2"}},"again":true}}'
    plain = hashlib.sha256(f"POST {path}/requeue?\n{content}".encode()).digest()
    assert requeued.fingerprint != plain
    assert found(CARD, dump(store_url)) == []


class Row(msgspec.Struct):
    fingerprint: bytes
    body: bytes


async def stored(hf: Holdfast, key: str) -> Row:
    async with hf._own_tables.transaction() as (_, statements):
        row = await statements.one("find_request", Row, scope="", key=key)
    assert row is not None
    return row
