"""6. A job whose claim was carried out, but whose answer was lost, never started: it loses
nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast, Job, Retry, State
from holdfast.job_function import JobFunction
from tests.support.crashing import make_suspects
from tests.support.proxy import Proxy
from tests.support.running import QUICK, seen_events, working
from tests.support.stores import full_store

pytestmark = [pytest.mark.heavy, pytest.mark.long]

LEASE: dict[str, Any] = {"lease_seconds": 3.0, "renew_seconds": 1.0, "reclaim_seconds": 0.2}
LOST_MAX = 3  # as many as the job may start
UNHEARD = "an argument in the answer to the claim"

CLAIM = b"SET state = 'running'"


@pytest.fixture
def proxy(store_url: str) -> Iterator[Proxy]:
    port = urlsplit(store_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
async def hf(store_url: str, proxy: Proxy) -> AsyncIterator[Holdfast]:
    """Behind the proxy, through which no answer may come."""
    address = store_url.replace(f":{urlsplit(store_url).port}/", f":{proxy.port}/")
    async with Holdfast(address, **QUICK, **LEASE) as app:
        yield app


def listener(hf: Holdfast) -> JobFunction[[str], Any]:
    @hf.job(retry=Retry.schedule([0.1] * (LOST_MAX - 1)))
    async def hear(what: str) -> str:
        return what

    return hear


async def heard(hf: Holdfast, job: Job) -> None:
    """The job ended well, and nothing says that it was claimed before."""
    ended = await hf.get(job.id)
    assert (ended.state, ended.result, ended.attempts) == (State.SUCCEEDED, UNHEARD, 1)
    assert (ended.crashes, ended.releases) == (0, 0)
    assert [each.outcome for each in await hf.jobs.attempts(job.id)] == ["succeeded"]


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_lost_answers_to_claims_cost_no_attempt(
    hf: Holdfast, proxy: Proxy, concurrency: int
) -> None:
    answers = proxy.cut_answers(UNHEARD.encode(), times=LOST_MAX)
    hear = listener(hf)
    async with seen_events() as seen, working(hf, concurrency=concurrency):
        await seen.first("worker_started")
        job = await hear.enqueue(UNHEARD)
        await seen.first("settle")
        assert len(seen.named("start")) == 1
        assert [event.fields["count"] for event in seen.named("strays_released")] == [1] * LOST_MAX
    assert answers.lost == LOST_MAX
    await heard(hf, job)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_suspect_whose_claim_got_no_answer_is_not_dead(hf: Holdfast, proxy: Proxy) -> None:
    """Alone in its process, it would be dead by one more crash."""
    job = await listener(hf).enqueue(UNHEARD)
    await make_suspects(hf, [job])
    before = await hf.get(job.id)
    proxy.cut_answers(UNHEARD.encode(), times=LOST_MAX)
    await hf.run_worker(until_empty=True, concurrency=1)
    ended = await hf.get(job.id)
    assert (ended.state, ended.result) == (State.SUCCEEDED, UNHEARD)
    assert (ended.attempts, ended.crashes) == (before.attempts + 1, before.crashes)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_lost_claim_from_a_queue_with_a_cap_costs_no_attempt(
    hf: Holdfast, proxy: Proxy
) -> None:
    hear = listener(hf)
    await (await full_store(hf)).cap("capped", 2)
    job = await hear.options(queue="capped").enqueue(UNHEARD)
    answers = proxy.cut_answers(UNHEARD.encode(), times=1)
    await hf.run_worker(until_empty=True)
    assert answers.lost == 1
    await heard(hf, job)


@pytest.mark.parametrize("store_url", ["bouncer"], indirect=True)
async def test_a_lost_commit_of_a_claim_costs_no_attempt(hf: Holdfast, proxy: Proxy) -> None:
    """Behind a pooler, a claim is a transaction."""
    job = await listener(hf).enqueue(UNHEARD)
    cut = proxy.cut_at_commit(CLAIM, before=False)
    await hf.run_worker(until_empty=True)
    assert cut.done.is_set()
    await heard(hf, job)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_worker_that_stops_leaves_no_stray_behind(hf: Holdfast, proxy: Proxy) -> None:
    hear = listener(hf)
    proxy.cut_answers(UNHEARD.encode(), times=1)
    job = await hear.enqueue(UNHEARD)
    async with seen_events() as seen, working(hf):
        await seen.first("claim_failed")
    left = await hf.get(job.id)
    assert (left.state, left.attempts, left.lease_owner) == (State.QUEUED, 0, None)
