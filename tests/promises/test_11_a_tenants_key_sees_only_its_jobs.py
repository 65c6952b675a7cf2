"""11. A tenant's key sees and changes only that tenant's jobs, counts, errors and events; what
belongs to others answers 404. Numbers over all tenants need an administrator's key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast import Holdfast, Job, Permanent, State
from holdfast.domain.keys import SCOPES
from tests.support.api import served
from tests.support.running import QUICK

TENANTS = ("acme", "globex")
OF_TENANTS = SCOPES[:-1]
EACH = 4  # jobs of a tenant


@asynccontextmanager
async def two_tenants(
    url: str,
) -> AsyncIterator[tuple[Holdfast, dict[str | None, httpx.AsyncClient], dict[str, list[Job]]]]:
    """Serve jobs of two tenants: waiting ones, and ones that failed with the same error. The block
    gets a client for each tenant, and one (None) for the administrator."""
    hf = Holdfast(url, **QUICK)

    @hf.job
    async def greet(name: str) -> str:
        if name.startswith("bad"):
            raise Permanent("no such person", code="UNKNOWN_PERSON")
        return name

    jobs: dict[str, list[Job]] = {}
    for tenant in TENANTS:
        own = hf.for_tenant(tenant)
        bad = [await own.enqueue(greet, f"bad {tenant}") for _ in range(EACH // 2)]
        later = greet.options(delay_seconds=3600)
        jobs[tenant] = bad + [await own.enqueue(later, tenant) for _ in range(EACH // 2)]
    await hf.run_due()
    async with served(hf) as client:
        clients: dict[str | None, httpx.AsyncClient] = {}
        for who in (*TENANTS, None):
            scopes = SCOPES if who is None else OF_TENANTS
            key = await hf.keys.create(f"of {who}", scopes=scopes, tenant=who)
            headers = {"authorization": f"Bearer {key.key}"}
            clients[who] = httpx.AsyncClient(base_url=client.base_url, headers=headers)
        try:
            yield hf, clients, jobs
        finally:
            await asyncio.gather(*(each.aclose() for each in clients.values()))


async def test_lists_counts_errors_and_events_have_only_the_tenants_own(store_url: str) -> None:
    async with two_tenants(store_url) as (_, clients, jobs):
        for tenant, other in (TENANTS, TENANTS[::-1]):
            client = clients[tenant]
            bad = jobs[tenant][0].id
            answers = [
                await client.get("/v1/jobs"),
                await client.get("/v1/dead"),
                await client.get("/v1/dead/groups"),
                await client.get("/v1/counts"),
                await client.get(f"/v1/jobs/{bad}/attempts"),
                await client.get(f"/v1/jobs/{bad}/related"),
                await client.get(f"/v1/jobs/{bad}/events"),
                await client.get("/v1/bulk"),
            ]
            assert [each.status_code for each in answers] == [200] * len(answers)
            strangers = [other, *(str(job.id) for job in jobs[other])]
            for answer in answers:
                assert not [word for word in strangers if word in answer.text], answer.url
            listed, dead, groups, counts, *_ = [each.json() for each in answers[:4]]
            assert {each["id"] for each in listed["jobs"]} == {str(job.id) for job in jobs[tenant]}
            assert len(dead["jobs"]) == EACH // 2
            assert [each["jobs"] for each in groups["groups"]] == [EACH // 2]
            assert sum(each["jobs"] for each in counts["counts"]) == EACH


async def test_nothing_that_a_tenant_does_changes_the_jobs_of_another(store_url: str) -> None:
    async with two_tenants(store_url) as (hf, clients, jobs):
        client = clients["acme"]
        bad, waiting = jobs["globex"][0].id, jobs["globex"][-1].id
        before = await hf.for_tenant("globex").jobs.list()
        for path in (
            f"/v1/jobs/{waiting}/cancel",
            f"/v1/jobs/{waiting}/retry",
            f"/v1/jobs/{bad}/retry",
            f"/v1/jobs/{bad}/requeue",
            f"/v1/dead/{bad}/requeue",
        ):
            assert (path, (await client.post(path)).status_code) == (path, 404)
        for path in ("", "/why", "/attempts", "/related", "/result", "/events"):
            found = await client.get(f"/v1/jobs/{waiting}{path}")
            assert (path, found.status_code) == (path, 404)
        leased = await client.post("/v1/leases", json={"names": ["greet"], "max": 9})
        assert leased.status_code == 204
        await hf.for_tenant("globex").enqueue(hf._functions["greet"], "globex")
        leased = await client.post("/v1/leases", json={"names": ["greet"], "max": 9})
        assert leased.status_code == 204
        everything: dict[str, Any] = {
            "action": "cancel", "filter": {"name": "greet"}, "start": True,
        }  # fmt: skip
        change = await client.post("/v1/bulk", json=everything, headers={"idempotency-key": "all"})
        assert change.json()["total"] == EACH // 2  # its own waiting jobs
        after = await hf.for_tenant("globex").jobs.list()
        assert after.jobs[1:] == before.jobs
        assert after.jobs[0].state is State.QUEUED


async def test_numbers_and_switches_over_all_tenants_need_an_administrators_key(
    store_url: str,
) -> None:
    async with two_tenants(store_url) as (_, clients, jobs):
        paths = (
            "/v1/queues", "/v1/queues/default", "/v1/breakers", "/v1/workers", "/v1/overview",
            "/v1/doctor", "/metrics", "/v1/keys", "/v1/audit",
        )  # fmt: skip
        for path in paths:
            assert (path, (await clients["acme"].get(path)).status_code) == (path, 403)
            assert (path, (await clients[None].get(path)).status_code) == (path, 200)
        paused = await clients["acme"].post("/v1/queues/default/pause")
        assert paused.status_code == 403
        everyones = (await clients[None].get("/v1/jobs")).json()["jobs"]
        assert {each["id"] for each in everyones} == {
            str(job.id) for tenant in TENANTS for job in jobs[tenant]
        }
