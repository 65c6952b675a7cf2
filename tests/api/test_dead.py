"""/v1/dead: the workbench for jobs that ended without success."""

from __future__ import annotations

from typing import Any

import httpx

from holdfast import Holdfast, Permanent
from tests.support.api import served


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job
    async def divide(a: int, b: int) -> float:
        if b == 0:
            raise Permanent(f"{a} / 0", code="ZERO")
        return a / b

    return hf


async def fail(hf: Holdfast, client: httpx.AsyncClient, numbers: list[int]) -> list[str]:
    ids = []
    for a in numbers:
        new = {"name": "divide", "arguments": {"a": a, "b": 0}}
        ids.append((await client.post("/v1/jobs", json=new)).json()["id"])
    await hf.run_due()
    return ids


async def test_dead_jobs_are_listed_grouped_and_requeued_with_other_arguments(
    store_url: str,
) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        ids = await fail(hf, client, [1, 2, 3])
        good = await client.post("/v1/jobs", json={"name": "divide", "arguments": {"a": 1, "b": 1}})
        await hf.run_due()
        first = (await client.get("/v1/dead?limit=2")).json()
        rest = (await client.get(first["next"])).json()
        listed = [each["id"] for each in [*first["jobs"], *rest["jobs"]]]
        assert (listed, rest["next"]) == (ids[::-1], None)
        found = (await client.get("/v1/dead/groups")).json()
        (group,) = found["groups"]
        assert (group["jobs"], group["error_code"]) == (3, "ZERO")
        assert (found["looked_at"], found["is_all"]) == (3, True)
        same = await client.get("/v1/dead", params={"fingerprint": group["fingerprint"]})
        assert len(same.json()["jobs"]) == 3
        copy = await client.post(
            f"/v1/dead/{ids[0]}/requeue", json={"arguments": {"a": 1, "b": 2}, "again": False}
        )
        assert (copy.status_code, copy.json()["requeued_from"]) == (201, ids[0])
        await hf.run_due()
        assert (await client.get(copy.headers["location"])).json()["result"] == 0.5
        wrong = await client.post(f"/v1/dead/{good.json()['id']}/requeue")
        assert (wrong.status_code, wrong.json()["code"]) == (409, "wrong-state")


async def test_groups_say_if_there_are_more_jobs_than_they_looked_at(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await fail(hf, client, [1, 2, 3])
        found: Any = (await client.get("/v1/dead/groups?look_max=2")).json()
        assert (found["looked_at"], found["is_all"]) == (2, False)


async def test_only_states_without_success_can_be_asked_for(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        refused = await client.get("/v1/dead?state=queued")
        assert refused.json()["errors"][0]["parameter"] == "state"
