"""/v1/queues: switches of queues, whatever their names."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from holdfast import Holdfast
from tests.support.api import served

ODD = ["a/b", "a/pause", "..x", "a b", "ä?#%&+", "100%2F", "/", "a\\b", "🦀", "pause", "x" * 200]


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job
    async def nothing() -> None: ...

    return hf


async def test_queues_with_odd_names_are_paused_capped_and_resumed(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        for name in ODD:
            await client.post("/v1/jobs", json={"name": "nothing", "queue": name})
            path = f"/v1/queues/{quote(name, safe='')}"
            paused = await client.post(f"{path}/pause", json={"because": "it moves"})
            assert (paused.json()["name"], paused.json()["paused_by"]) == (name, "local")
            assert (await client.post(f"{path}/pause")).json()["code"] == "wrong-state"
            capped = await client.put(f"{path}/cap", json={"running_max": 2})
            assert (capped.json()["running_max"], capped.json()["ready"]) == (2, 1)
            resumed = await client.post(f"{path}/resume")
            assert resumed.json()["paused_at"] is None
            assert (await client.put(f"{path}/cap", json={"running_max": None})).json() == (
                await client.get(path)
            ).json() | {"oldest_ready_seconds": pytest.approx(0, abs=60)}
        listed = (await client.get("/v1/queues")).json()["queues"]
        assert {each["name"] for each in listed} == set(ODD)
        log = (await client.get("/v1/audit?limit=6")).json()["entries"][::-1]
        assert [(each["action"], each["outcome"]) for each in log] == [
            ("queue.pause", "allowed"),
            ("queue.pause", "allowed"),
            ("queue.pause", "failed"),
            ("queue.cap", "allowed"),
            ("queue.resume", "allowed"),
            ("queue.cap", "allowed"),
        ]
        assert (log[0]["because"], log[0]["target"]) == ("it moves", ODD[-1])


async def test_names_that_no_queue_can_have_are_refused(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        for name in ("%00", "a%0Ab", "%C2%85", "%E2%80%A8", "x" * 201):
            refused = await client.post(f"/v1/queues/{name}/pause")
            assert refused.status_code == 400, name
            assert refused.json()["errors"][0]["parameter"] == "queue"
        pattern = await client.post("/v1/queues/images-*/pause")
        assert (pattern.status_code, pattern.json()["code"]) == (400, "bad-request")
        for cap in (-1, 1.5, "1", 10**7):
            refused = await client.put("/v1/queues/a/cap", json={"running_max": cap})
            assert refused.json()["errors"][0]["pointer"] == "/running_max"
