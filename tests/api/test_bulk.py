"""/v1/bulk over a real server: previewed, started, followed, stopped; and killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from holdfast import Filter, GroupFilter, Holdfast, Job, State
from holdfast.domain.bulk import CATCH_UP_SECONDS
from holdfast.domain.keys import NewKey
from tests.support.api import served
from tests.support.bulk import canceled_jobs, copies, dead_jobs, let_leases_expire, waiting_jobs
from tests.support.failures import add_dead
from tests.support.processes import Process, wait_until
from tests.support.running import QUICK, execute, seen_events

CANCEL = {"action": "cancel", "filter": {"name": "wait"}}
NOBODY = UUID(int=7)


@pytest.fixture
def app(store_url: str) -> Holdfast:
    return Holdfast(store_url, **QUICK)


@pytest.fixture
async def client(app: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with served(app) as client:
        yield client


async def create(
    client: httpx.AsyncClient, body: dict[str, Any], key: str = "k-1", **headers: str
) -> httpx.Response:
    return await client.post("/v1/bulk", json=body, headers={"idempotency-key": key, **headers})


async def reaches(client: httpx.AsyncClient, path: str, state: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    async def reached() -> bool:
        seen.update((await client.get(path)).json())
        return bool(seen["state"] == state)

    await wait_until(reached, lambda: f"{state}: {seen}")
    return seen


async def test_a_group_of_dead_jobs_is_previewed_started_and_requeued_once(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    jobs = await dead_jobs(app, 8)
    (group,) = (await client.get("/v1/dead/groups")).json()["groups"]
    made = await create(
        client,
        {
            "action": "requeue",
            "filter": {"fingerprint": group["fingerprint"]},
            "jobs_per_second": 50,
            "because": "it is back",
        },
    )
    assert made.status_code == 201
    preview = made.json()
    assert (preview["state"], preview["total"], preview["by"]) == ("previewed", 8, "local")
    assert preview["counts"] == [{"state": "dead", "name": "fail", "jobs": 8}]
    assert [job["id"] for job in preview["sample"]] == [str(job.id) for job in jobs[:5]]
    path = made.headers["location"]
    assert path == f"/v1/bulk/{preview['id']}"
    assert (await client.get(path)).json() == preview
    started = await client.post(f"{path}/start")
    assert (started.status_code, started.json()["state"]) == (200, "running")
    done = await reaches(client, path, "completed")
    assert (done["done"], done["changed"], done["moved_on"]) == (8, 8, 0)
    assert await copies(app) == sorted(job.id for job in jobs)


async def test_it_can_start_at_once_and_is_made_once_for_its_key(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    await waiting_jobs(app, 3)
    first = await create(client, {**CANCEL, "start": True})
    again = await create(client, {**CANCEL, "start": True})
    assert first.json()["state"] == "running"
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert (await create(client, CANCEL)).status_code == 422
    assert (await client.post("/v1/bulk", json=CANCEL)).json()["code"] == "idempotency-key-missing"
    assert len((await client.get("/v1/bulk")).json()["changes"]) == 1
    await reaches(client, first.headers["location"], "completed")


async def test_a_running_change_is_paused_resumed_and_canceled(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    await waiting_jobs(app, 50)
    made = await create(client, {**CANCEL, "jobs_per_second": 10, "start": True})
    path = made.headers["location"]

    async def has_begun() -> bool:
        return bool((await client.get(path)).json()["done"])

    await wait_until(has_begun, "begun")
    paused = (await client.post(f"{path}/pause")).json()
    assert paused["state"] == "paused"
    assert (await client.get(path)).json()["done"] == paused["done"] < 50
    assert (await client.post(f"{path}/resume")).json()["state"] == "running"
    canceled = (await client.post(f"{path}/cancel")).json()
    assert (canceled["state"], canceled["done"] < 50) == ("canceled", True)
    refused = await client.post(f"{path}/start")
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong-state")
    left = (await app.jobs.list(Filter(name="wait", states=(State.QUEUED,)), 100)).jobs
    assert len(left) == 50 - canceled["changed"]


async def test_a_bad_change_is_refused_with_a_pointer(local_hf: Holdfast) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"action": "delete", "ids": [str(NOBODY)]}, "/action"),
        ({"action": "cancel"}, ""),
        ({"action": "cancel", "filter": {}, "ids": [str(NOBODY)]}, ""),
        ({"action": "cancel", "ids": []}, "/ids"),
        ({"action": "cancel", "filter": {"nmae": "wait"}}, "/filter/nmae"),
        ({"action": "cancel", "filter": {"states": ["lost"]}}, "/filter/states/0"),
        ({"action": "cancel", "filter": {}, "jobs_per_second": 0}, "/jobs_per_second"),
        ({"action": "cancel", "filter": {}, "jobs_per_second": 1e-300}, "/jobs_per_second"),
        ({"action": "cancel", "filter": {}, "jobs_per_second": 0.0009}, "/jobs_per_second"),
        ({"action": "cancel", "filter": {"since": "2026-01-01T00:00:00"}}, "/filter/since"),
    ]
    async with served(local_hf) as client:
        for body, pointer in bad:
            refused = await create(client, body)
            assert refused.status_code == 400, body
            assert refused.json()["errors"][0]["pointer"] == pointer
        assert (await create(client, CANCEL)).status_code == 201  # the key is free


async def test_a_retry_has_to_name_its_states(client: httpx.AsyncClient) -> None:
    refused = await create(client, {"action": "retry", "filter": {"name": "wait"}})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad-arguments")


async def test_changes_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    made = [(await create(client, CANCEL, f"k-{n}")).json()["id"] for n in range(3)]
    first = await client.get("/v1/bulk?limit=2")
    assert [change["id"] for change in first.json()["changes"]] == [made[2], made[1]]
    assert first.headers["link"] == f'<{first.json()["next"]}>; rel="next"'
    second = (await client.get(first.json()["next"])).json()
    assert ([change["id"] for change in second["changes"]], second["next"]) == ([made[0]], None)
    assert (await client.get("/v1/bulk?cursor=x")).status_code == 400
    missing = await client.get(f"/v1/bulk/{NOBODY}")
    assert (missing.status_code, missing.json()["code"]) == (404, "bulk-change-not-found")


def bearing(key: NewKey) -> dict[str, str]:
    return {"authorization": f"Bearer {key.key}"}


async def test_a_tenants_key_reaches_its_own_jobs_and_changes_only(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    admin = await app.keys.create("admin", scopes=["read", "operate", "admin"])
    acme = await app.keys.create("acme", scopes=["read", "operate"], tenant="acme")
    globex = await app.keys.create("globex", scopes=["read", "operate"], tenant="globex")
    (own,) = await canceled_jobs(app, 1, "acme")
    (other,) = await canceled_jobs(app, 1, "globex")
    body = {"action": "requeue", "ids": [str(own.id), str(other.id)], "start": True}
    made = await create(client, body, **bearing(acme))
    path = made.headers["location"]
    assert made.json()["counts"] == [{"state": "canceled", "name": "wait", "jobs": 1}]
    for verb in ("start", "pause", "resume", "cancel"):
        denied = await client.post(f"{path}/{verb}", headers=bearing(globex))
        assert denied.status_code == 404
    assert (await client.get(path, headers=bearing(globex))).status_code == 404
    assert (await client.get("/v1/bulk", headers=bearing(globex))).json()["changes"] == []
    assert len((await client.get("/v1/bulk", headers=bearing(admin))).json()["changes"]) == 1
    named = {"action": "cancel", "filter": {"tenant": "globex"}}
    assert (await create(client, named, "k-2", **bearing(acme))).status_code == 403

    async def is_done() -> bool:
        seen = (await client.get(path, headers=bearing(acme))).json()
        return bool(seen["state"] == "completed" and seen["changed"] == seen["moved_on"] == 1)

    await wait_until(is_done, "done")
    assert await copies(app) == [own.id]


async def test_the_audit_log_says_who_changed_how_many(
    app: Holdfast, client: httpx.AsyncClient
) -> None:
    await waiting_jobs(app, 4)
    made = await create(client, {**CANCEL, "because": "wrong file"})
    await client.post(f"{made.headers['location']}/cancel")
    entries = (await app.audit.list()).entries
    assert [(each.action, each.target, each.jobs) for each in entries] == [
        ("bulk.cancel", made.json()["id"], 4),
        ("bulk.create", made.json()["id"], 4),
    ]
    assert entries[1].because == "wrong file"


async def test_a_step_that_fails_pauses_the_change_and_the_server_goes_on(
    app: Holdfast, store_url: str, client: httpx.AsyncClient
) -> None:
    await waiting_jobs(app, 1)
    broken = (await create(client, CANCEL)).headers["location"]
    await execute(store_url, "UPDATE bulk_changes SET made_by = ''")
    async with seen_events() as seen:
        await client.post(f"{broken}/start")
        await seen.first("bulk_change_failed")
        paused = await reaches(client, broken, "paused")
    assert "operator must not be empty" in paused["error_text"]
    good = await create(client, {**CANCEL, "start": True}, "k-2")
    assert (await reaches(client, good.headers["location"], "completed"))["changed"] == 1


async def test_a_server_that_stops_leaves_its_changes_to_others(store_url: str) -> None:
    one, two = Holdfast(store_url, **QUICK), Holdfast(store_url, **QUICK)
    await waiting_jobs(one, 20)
    async with served(one) as client:
        made = await create(client, {**CANCEL, "jobs_per_second": 20, "start": True})
        path = made.headers["location"]

        async def has_begun() -> bool:
            return bool((await client.get(path)).json()["done"])

        await wait_until(has_begun, "begun")
    async with served(two) as client:
        assert (await reaches(client, path, "completed"))["changed"] == 20


SERVED = """
from holdfast import Holdfast

hf = Holdfast()

@hf.job(name="wait")
async def wait(number: int) -> int:
    return number
"""


@pytest.mark.heavy
async def test_a_change_survives_kill_9_of_its_server_and_requeues_each_job_once_at_its_rate(
    store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    command = ["-m", "holdfast.cli.main", "serve", "served:hf", "--port=0", "--log-format=json"]
    servers = {}
    async with Holdfast(store_url, **QUICK) as hf:
        jobs = await canceled_jobs(hf, 120)
        try:
            for name in ("one", "two"):
                server = Process(name, command, tmp_path, {"HOLDFAST_DATABASE_URL": store_url})
                servers[server.pid] = server
                await server.logs("serving")
            change = await hf.bulk.create(
                "requeue", [job.id for job in jobs], again=True, jobs_per_second=50, start=True
            )
            await wait_until(partial(has_done, hf, change.id, 20), "begun")
            servers[await runner_of(hf, store_url)].kill()
            if store_url.startswith("sqlite"):  # on PostgreSQL, it waits for the real time
                await let_leases_expire(store_url)
            await wait_until(partial(has_done, hf, change.id, 120), "taken over and done")
        finally:
            for server in servers.values():
                server.kill()
        done = await hf.bulk.get(change.id)
        assert (done.state, done.changed) == ("completed", 120)
        assert await copies(hf) == sorted(job.id for job in jobs)
        made_at = sorted(job.created_at for job in await requeued(hf))
    for begin, first in enumerate(made_at):
        for end in range(begin, 120):
            window = (made_at[end] - first).total_seconds()
            assert end - begin <= 50 * (window + CATCH_UP_SECONDS) + 5


@pytest.mark.heavy
async def test_the_redrive_of_a_group_survives_kill_9_of_the_only_server(
    store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    command = ["-m", "holdfast.cli.main", "serve", "served:hf", "--port=0", "--log-format=json"]
    environment = {"HOLDFAST_DATABASE_URL": store_url}
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.dead.groups()
        texts = [f"no answer from 10.0.0.{number}" for number in range(90)]
        dead = await add_dead(store_url, *texts, name="wait")
        await add_dead(store_url, "something else", name="wait")

        async def group_is_counted() -> bool:
            return [group.jobs for group in (await hf.dead.groups()).groups] in ([1, 90], [90, 1])

        servers = []
        try:
            for name in ("first", "second"):
                servers.append(Process(name, command, tmp_path, environment))
                await servers[-1].logs("serving")
                if name == "second":
                    break
                await wait_until(group_is_counted, "the server counts the jobs of the group")
                (group,) = (await hf.dead.groups(GroupFilter(text="no answer"))).groups
                change = await hf.bulk.create(
                    "requeue",
                    Filter(fingerprint=group.fingerprint),
                    jobs_per_second=50,
                    start=True,
                )
                assert (change.total, change.counts[0].jobs) == (90, 90)
                await wait_until(partial(has_done, hf, change.id, 20), "begun")
                servers[-1].kill()
                if store_url.startswith("sqlite"):  # on PostgreSQL, it waits for the real time
                    await let_leases_expire(store_url)
            await wait_until(partial(has_done, hf, change.id, 90), "taken over and done")
        finally:
            for server in servers:
                server.kill()
        assert (await hf.bulk.get(change.id)).changed == 90
        assert await copies(hf) == sorted(dead)


async def has_done(hf: Holdfast, change_id: UUID, jobs: int) -> bool:
    return (await hf.bulk.get(change_id)).done >= jobs


async def requeued(hf: Holdfast) -> list[Job]:
    found = (await hf.jobs.list(Filter(states=(State.QUEUED,)), 1000)).jobs
    return [job for job in found if job.requeued_from is not None]


async def runner_of(hf: Holdfast, store_url: str) -> int:
    """The id of the process that runs the only change."""
    table = "bulk_changes" if store_url.startswith("sqlite") else "holdfast.bulk_changes"
    async with hf.transaction(read_only=True) as connection:
        owner: str = await connection.fetchval(f"SELECT owner FROM {table}")
    return int(owner.split(":")[1])
