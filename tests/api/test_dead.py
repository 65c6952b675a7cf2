"""/v1/dead: the workbench for jobs that ended without success."""

from __future__ import annotations

import httpx

from holdfast import Holdfast, Permanent
from tests.support.api import served
from tests.support.failures import add_dead
from tests.support.processes import wait_until


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
        await hf.dead.count_groups()
        found = (await client.get("/v1/dead/groups")).json()
        (group,) = found["groups"]
        assert (group["jobs"], group["error_code"], found["next"]) == (3, "ZERO", None)
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


async def test_a_server_counts_dead_jobs_by_itself(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await fail(hf, client, [1, 2, 3])

        async def are_counted() -> bool:
            groups = (await client.get("/v1/dead/groups")).json()["groups"]
            return [group["jobs"] for group in groups] == [3]

        await wait_until(are_counted, "the server counts the jobs")


async def test_a_tenant_that_can_not_be_is_a_mistake_in_the_query(local_hf: Holdfast) -> None:
    async with served(local_hf) as client:
        answer = await client.get("/v1/dead/groups", params={"tenant": "a\x17b"})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["parameter"] == "tenant"


async def test_groups_are_changed_by_name_and_listed_in_pages(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await fail(hf, client, [1, 2])
        await add_dead(store_url, "boom", name="work")
        await hf.dead.count_groups()
        first = (await client.get("/v1/dead/groups?limit=1&order=largest")).json()
        rest = (await client.get(first["next"])).json()
        assert [group["jobs"] for group in (*first["groups"], *rest["groups"])] == [2, 1]
        assert rest["next"] is None
        path = f"/v1/dead/groups/{first['groups'][0]['fingerprint']}"
        assert (await client.get(path)).json()["jobs"] == 2
        jobs = (await client.get(f"{path}/jobs?limit=1")).json()
        more = (await client.get(jobs["next"])).json()
        assert (len({each["jobs"][0]["job_id"] for each in (jobs, more)}), more["next"]) == (
            2,
            None,
        )
        body = {"version": "2.4.1", "note": "divisors are checked now"}
        resolved = (await client.post(f"{path}/resolve", json=body)).json()
        assert (resolved["state"], resolved["resolved_in"]) == ("resolved", "2.4.1")
        refused = await client.post(f"{path}/acknowledge")
        assert (refused.status_code, refused.json()["code"]) == (409, "wrong-state")
        assert (await client.post(f"{path}/reopen")).json()["state"] == "new"
        found = (await client.get("/v1/dead/groups?state=new&text=BOOM")).json()["groups"]
        assert [group["name"] for group in found] == ["work"]
        entries = (await hf.audit.list()).entries
        assert [
            entry.action for entry in entries if entry.target == first["groups"][0]["fingerprint"]
        ]


async def test_only_states_without_success_can_be_asked_for(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        refused = await client.get("/v1/dead?state=queued")
        assert refused.json()["errors"][0]["parameter"] == "state"
