"""A server whose workers all lease over HTTP needs no worker in Python."""

from __future__ import annotations

from holdfast import Holdfast, State
from holdfast.cli.display import worker_row
from tests.support.api import served
from tests.support.leasing import job_of, make_app, take
from tests.support.processes import wait_until
from tests.support.running import let_leases_run_out, seen_events, working

QUICK_UPKEEP = {"reclaim_seconds": 0.1}


async def test_the_server_reclaims_the_job_of_a_worker_that_died(store_url: str) -> None:
    hf = make_app(store_url, **QUICK_UPKEEP)
    async with served(hf, upkeep=True) as client:
        job = await job_of(hf).enqueue(1)
        for attempt in (1, 2):
            (lease,) = await take(client, wait_seconds=50)
            assert (lease["job_id"], lease["attempt"]) == (str(job.id), attempt)
            await let_leases_run_out(store_url)


async def test_a_lost_lease_is_a_lost_attempt_and_nobody_is_a_suspect(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        job = await job_of(hf).options(max_attempts=1).enqueue(1)
        assert len(await take(client)) == 1
        await let_leases_run_out(store_url)
        (reclaimed,) = await (await hf._store()).reclaim(10)
        assert (reclaimed.state, reclaimed.suspect) == (State.DEAD, False)
        assert (await hf.get(job.id)).attempts == 1


async def test_others_see_the_server_and_not_a_worker_that_fails_to_run_its_jobs(
    store_url: str,
) -> None:
    hf = make_app(store_url)
    async with served(hf, upkeep=True):
        await wait_until(hf.workers.list, "the server's heartbeat")
        (server,) = await hf.workers.list()
        assert (server.is_server, server.names) == (True, ("pay", "resize", "shrink"))
        assert worker_row(server)["LOAD"] == "HTTP"
        remote, local = await job_of(hf).enqueue(1), await job_of(hf, "local").enqueue(1)
        why = await hf.jobs.why(remote.id)
        assert why.code == "waiting_for_lease"
        assert "workers lease resize over HTTP" in why.sentence
        assert (await hf.jobs.why(local.id)).code == "no_worker"
        found = {each.facts.get("queue") for each in (await hf.examine()).findings}
        assert "images" not in found
        assert "default" in found
    assert await hf.workers.list() == []


async def test_a_worker_in_python_does_not_warn_of_remote_jobs(local_url: str) -> None:
    hf, other = make_app(local_url), Holdfast(local_url)
    other.job(name="nobody's")(lambda: None)
    async with hf, other, seen_events() as seen:
        await job_of(hf).enqueue(1)
        await job_of(other, "nobody's").enqueue()
        async with working(hf):
            await seen.first("unknown_name")
    assert [event.fields["name"] for event in seen.named("unknown_name")] == ["nobody's"]
