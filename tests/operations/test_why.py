"""Why a job is not running: every answer, in a database where it is so."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from msgspec.structs import replace

from holdfast import (
    Breaker,
    Context,
    Holdfast,
    JobNotFound,
    Permanent,
    Reason,
    Retry,
    Snooze,
    State,
    Transient,
    Why,
)
from holdfast.domain.limits import AHEAD_COUNTED_MAX, PROBES_FREE_MAX, WORKER_LOST_LEASES
from holdfast.domain.why import explain
from holdfast.domain.workers import Load
from holdfast.stores.protocol import Claim
from holdfast.testing.conformance.workers import worker
from tests.promises.stage import both_stores
from tests.support.command import command
from tests.support.crashing import make_suspects
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, signal, working
from tests.support.stores import full_store

pytestmark = [both_stores, pytest.mark.heavy]


class Hold:
    """A handler that runs until the test lets it end."""

    def __init__(self, hf: Holdfast) -> None:
        self.gate = asyncio.Event()

        @hf.job
        async def hold() -> None:
            await signal(self.gate)

        self.job = hold


@pytest.fixture
async def hold(hf: Holdfast) -> AsyncIterator[Hold]:
    made = Hold(hf)
    yield made
    made.gate.set()


@asynccontextmanager
async def serving(hf: Holdfast, **options: object) -> AsyncIterator[None]:
    """A worker that is seen."""

    async def there() -> bool:
        return bool(await hf.workers.list())

    async with working(hf, **options):
        await wait_until(there, "a worker")
        yield


async def answered(hf: Holdfast, job_id: UUID, code: Reason) -> Why:
    """Wait until this is the answer; workers tell what they do at their renewals only."""
    found = await hf.jobs.why(job_id)

    async def so() -> bool:
        nonlocal found
        found = await hf.jobs.why(job_id)
        return found.code is code

    await wait_until(so, lambda: f"{code}: {found}")
    assert found.job_id == job_id
    return found


async def claim(hf: Holdfast, lease_seconds: float = 60.0) -> None:
    """Lease what is due for a worker that does nothing with it."""
    store = await full_store(hf)
    names = hf.names
    await store.claim(Claim(worker="idle", limit=10, lease_seconds=lease_seconds, names=names))


async def test_a_job_that_does_not_exist_has_no_answer(hf: Holdfast) -> None:
    with pytest.raises(JobNotFound):
        await hf.jobs.why(hf.new_id())


async def test_not_due(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(delay_seconds=270).enqueue()
    why = await hf.jobs.why(job.id)
    due = (await hf.get(job.id)).run_at
    assert why.code is Reason.NOT_DUE
    assert why.sentence.startswith(f"it is not due until {due:%Y-%m-%dT%H:%M:%S}.")
    assert "(in 4 min); to run it now: holdfast jobs retry" in why.sentence
    assert why.facts["run_at"] == due


async def test_a_snooze_is_no_retry_though_an_attempt_failed_before(hf: Holdfast) -> None:
    @hf.job(retry=Retry.schedule([0.0]))
    async def doze(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Transient("not yet", code="EARLY")
        raise Snooze(100)

    job = await doze.enqueue()
    async with serving(hf):
        why = await answered(hf, job.id, Reason.NOT_DUE)
    assert "(in 1 min), snoozed once" in why.sentence
    assert "EARLY" not in why.sentence


async def test_waiting_for_a_retry(hf: Holdfast) -> None:
    @hf.job(retry=Retry.schedule([250, 250]))
    async def fail() -> None:
        raise Transient("the gateway is down\nand more", code="GW_5XX")

    job = await fail.enqueue()
    async with serving(hf):
        why = await answered(hf, job.id, Reason.WAITING_FOR_RETRY)
    assert "with GW_5XX: the gateway is down; the next is due at" in why.sentence
    assert "it is waiting to retry: attempt 1 of 3 failed at 20" in why.sentence
    assert "(in 4 min)" in why.sentence
    assert "and more" not in why.sentence
    assert why.facts["run_at"] == (await hf.get(job.id)).run_at
    # Made due by hand it is a job like any other.
    await hf.jobs.retry(job.id)
    assert (await hf.jobs.why(job.id)).code is Reason.NO_WORKER


async def test_handed_back(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def send(to: str) -> None: ...

    async with Holdfast(store_url) as newer:

        @newer.job(name="send")
        async def send_more(to: str, subject: str) -> None: ...

        job = await send_more.enqueue("ada", "hello")
    await execute(store_url, "UPDATE jobs SET releases = 5")
    await hf.run_due()
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.HANDED_BACK
    (attempt,) = await hf.jobs.attempts(job.id)
    assert why.sentence.startswith(
        f"it is waiting for a worker that can run it: on {attempt.worker},"
        " send(to) has no argument 'subject'; handed back 6 of at most 100 times,"
    )
    assert "due again at" in why.sentence
    assert (why.facts["releases"], why.facts["releases_max"]) == (6, 100)


async def test_no_live_worker_at_all(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(queue="mail").enqueue()
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.NO_WORKER
    assert why.sentence.startswith("no live worker serves queue mail; the job has been due since")
    assert why.sentence.endswith(": start a worker")


async def test_workers_of_other_queues_only(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(queue="mail").enqueue()
    async with serving(hf, queues="images,sound"):
        why = await hf.jobs.why(job.id)
    assert why.code is Reason.NO_WORKER
    assert (
        "no live worker serves queue mail: there is 1 live worker for other queues (images, sound)"
        in (why.sentence)
    )


async def test_a_worker_that_is_lost_serves_nothing(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    # As a killed worker would leave it, with a lease so short that some have passed.
    lease_seconds = 0.01
    store = await full_store(hf)
    lost = worker(id="lost", queues=None, names=tuple(hf.names), lease_seconds=lease_seconds)
    await store.register(lost, Load())

    async def gone() -> bool:
        return all(each.lost for each in await hf.workers.list())

    await wait_until(gone, f"lost after {WORKER_LOST_LEASES * lease_seconds} s")
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.NO_WORKER
    assert "; lost, which served it, was last seen at" in why.sentence
    assert why.facts["lost_workers"] == 1


async def test_a_process_for_suspects_serves_nothing_else(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    alone = worker(queues=None, names=tuple(hf.names), suspects_only=True)
    await (await full_store(hf)).register(alone, Load())
    assert (await hf.jobs.why(job.id)).code is Reason.NO_WORKER


async def test_workers_that_do_not_know_the_name(hf: Holdfast, store_url: str) -> None:
    Hold(hf)
    other = Holdfast(store_url)

    @other.job(name="renamed")
    async def nothing() -> None: ...

    async with other, serving(hf):
        job = await nothing.enqueue()
        why = await hf.jobs.why(job.id)
    assert why.code is Reason.UNKNOWN_NAME
    assert why.sentence.startswith(
        "there is 1 live worker for queue default, but none knows the job name renamed:"
    )


async def test_all_slots_taken_and_jobs_ahead(store_url: str) -> None:
    async with Holdfast(store_url, **QUICK, renew_seconds=0.3) as hf:
        hold = Hold(hf)
        await hf.enqueue_many([hold.job.call() for _ in range(2)])
        async with serving(hf, concurrency=2):
            running = (State.RUNNING, 2)

            async def full() -> bool:
                return [(each.state, each.jobs) for each in await hf.jobs.counts()] == [running]

            await wait_until(full, "2 running")
            jobs = [await hold.job.enqueue() for _ in range(3)]
            why = await answered(hf, jobs[0].id, Reason.BUSY)
            assert why.sentence.startswith("all 2 slots of the worker that can run it are taken (")
            assert "and it is next in queue default; add slots" in why.sentence
            last = await hf.jobs.why(jobs[2].id)
            assert "and 2 jobs are ahead of it in queue default; add" in last.sentence
            assert (last.facts["ahead"], last.facts["slots"], last.facts["running"]) == (2, 2, 2)
            hold.gate.set()
            for job in jobs:
                await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_queue_that_has_reached_its_limit(store_url: str) -> None:
    async with Holdfast(store_url, **QUICK, renew_seconds=0.3) as hf:
        hold = Hold(hf)
        jobs = [await hold.job.options(queue="images").enqueue() for _ in range(2)]
        async with serving(hf, concurrency=10, queues="images:1"):
            why = await answered(hf, jobs[1].id, Reason.BUSY)
            assert "all slots for queue images on the worker that can run it are taken" in (
                why.sentence
            )
            hold.gate.set()
            await hf.result(jobs[1].id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_jobs_ahead_though_slots_are_free(hf: Holdfast, hold: Hold) -> None:
    # A worker that has not claimed for a moment, as others see it.
    idle = worker(queues=None, names=tuple(hf.names), concurrency=20)
    await (await full_store(hf)).register(idle, Load(3))
    first, second = [await hold.job.enqueue() for _ in range(2)]
    why = await hf.jobs.why(second.id)
    assert why.code is Reason.JOBS_AHEAD
    assert why.sentence.startswith("1 job is ahead of it in queue default; 3 of 20 slots of the")
    assert (await hf.jobs.why(first.id)).code is Reason.NEXT
    await hf.enqueue_many(
        [hold.job.options(priority=-1).call() for _ in range(AHEAD_COUNTED_MAX + 1)]
    )
    why = await hf.jobs.why(first.id)
    assert why.sentence.startswith("more than 1,000 jobs are ahead of it in queue default")
    assert (why.facts["ahead"], why.facts["ahead_is_more"]) == (AHEAD_COUNTED_MAX, True)


async def test_nothing_stands_in_the_way(hf: Holdfast, hold: Hold) -> None:
    idle = worker(queues=None, names=tuple(hf.names), concurrency=20)
    await (await full_store(hf)).register(idle, Load())
    job = await hold.job.enqueue()
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.NEXT
    assert "it is next in queue default; 0 of 20 slots" in why.sentence
    assert why.sentence.endswith("it should start any moment")


async def seen_worker(hf: Holdfast) -> None:
    """A worker that could take anything at once, as others see it: it claims nothing."""
    await (await full_store(hf)).register(worker(queues=None, names=tuple(hf.names)), Load())


async def test_a_paused_queue(hf: Holdfast, hold: Hold) -> None:
    images = hold.job.options(queue="images")
    job, later = await images.enqueue(), await images.options(delay_seconds=270).enqueue()
    await hf.queues.pause("images", by="ann@host", because="the disk is full")
    (queue,) = await hf.queues.list()
    async with serving(hf):
        why = await hf.jobs.why(job.id)
    assert why.code is Reason.QUEUE_PAUSED
    assert why.sentence.startswith("queue images has been paused by ann@host since 20")
    assert why.sentence.endswith(
        "): the disk is full; resume it with: holdfast queues resume images"
    )
    assert (why.facts["paused_at"], why.facts["paused_by"]) == (queue.paused_at, "ann@host")
    # Who paused it knows that no worker is needed; and a job that is not due would not run anyway.
    assert (await hf.jobs.why(job.id)).code is Reason.QUEUE_PAUSED
    assert (await hf.jobs.why(later.id)).code is Reason.NOT_DUE
    await hf.queues.resume("images")
    assert (await hf.jobs.why(job.id)).code is Reason.NO_WORKER


async def test_a_pause_without_a_name_and_a_reason(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(queue="two words").enqueue()
    await hf.queues.pause("two words")
    sentence = (await hf.jobs.why(job.id)).sentence
    assert sentence.startswith("queue two words has been paused since 20")
    assert sentence.endswith("); resume it with: holdfast queues resume 'two words'")


async def test_a_running_job_of_a_paused_queue_runs(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    await claim(hf)
    await hf.queues.pause("default")
    assert (await hf.jobs.why(job.id)).code is Reason.LEASED


async def test_a_queue_that_has_reached_its_cap(hf: Holdfast, hold: Hold) -> None:
    await hf.queues.cap("default", 2)
    jobs = [await hold.job.enqueue() for _ in range(4)]
    await claim(hf)
    assert (await hf.jobs.why(jobs[3].id)).code is Reason.NO_WORKER
    await seen_worker(hf)
    why = await hf.jobs.why(jobs[3].id)
    assert why.code is Reason.QUEUE_FULL
    assert why.sentence == (
        "queue default has reached its cap: 2 of at most 2 jobs are running, across all workers,"
        " and 1 job is ahead of it in queue default; to raise it: holdfast queues cap default N"
    )
    assert (why.facts["queue_running"], why.facts["running_max"]) == (2, 2)
    await hf.queues.cap("default", 3)
    assert (await hf.jobs.why(jobs[3].id)).code is Reason.JOBS_AHEAD
    await hf.queues.cap("default", None)
    assert (await hf.jobs.why(jobs[2].id)).code is Reason.NEXT


async def test_a_queue_that_may_run_nothing(hf: Holdfast, hold: Hold) -> None:
    await hf.queues.cap("default", 0)
    job = await hold.job.enqueue()
    # Neither a worker nor one that knows the job could run it.
    assert (await hf.jobs.why(job.id)).code is Reason.QUEUE_FULL
    await seen_worker(hf)
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.QUEUE_FULL
    assert why.sentence.startswith("queue default can't run any jobs: its cap is 0; to raise it:")


async def test_a_breaker_that_has_opened(hf: Holdfast) -> None:
    @hf.job(breaker=Breaker("gateway", failures=1, probe_seconds=250), retry=Retry.schedule([0.0]))
    async def fail() -> None:
        raise Transient("it is down", code="GW_5XX")

    job = await fail.enqueue()
    async with serving(hf):
        why = await answered(hf, job.id, Reason.BREAKER_OPEN)
    (breaker,) = await hf.breakers.list()
    assert re.match(r"breaker gateway has been open since 20\S+ \(.*\): .*GW_5XX", why.sentence)
    assert "its jobs are parked, and it sends one as a probe at 20" in why.sentence
    assert "(in 4 min): if that succeeds, the others follow; to close it now:" in why.sentence
    assert why.sentence.endswith(" holdfast breakers close gateway")
    assert why.facts["next_probe_at"] == breaker.next_probe_at
    assert why.facts["probes"] == 0
    # Without a worker no job is sent ahead: that is what has to change first.
    assert (await hf.jobs.why(job.id)).code is Reason.NO_WORKER


@pytest.mark.parametrize(
    ("probes", "told"),
    [
        (1, "sent as a probe once and failed; after 5 times, each failure uses up an attempt; to"),
        (5, "sent as a probe 5 times and failed; each further failure uses up an attempt; to"),
    ],
)
async def test_a_job_whose_own_probes_failed(hf: Holdfast, probes: int, told: str) -> None:
    @hf.job(breaker=Breaker("gateway", failures=1, probe_seconds=250))
    async def call() -> None: ...

    await (await full_store(hf)).strike(
        [Breaker("gateway", failures=1).strike("gateway", "A", "B")]
    )
    job = await call.enqueue()
    await seen_worker(hf)
    found = await (await full_store(hf)).circumstances(job.id)
    assert found is not None
    why = explain(replace(found, probes=probes))
    assert f"the others follow; this job was {told} close it now: " in why.sentence
    assert (why.facts["probes"], why.facts["probes_free"]) == (probes, PROBES_FREE_MAX)


async def test_a_breaker_that_was_opened_by_hand(hf: Holdfast) -> None:
    @hf.job(breaker="gateway")
    async def call() -> None: ...

    await hf.breakers.open("gateway", by="ann@host", because="deploying")
    job = await call.enqueue()
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.BREAKER_OPEN
    assert why.sentence.startswith("breaker gateway was opened by hand by ann@host at 20")
    assert why.sentence.endswith(
        "): deploying; its jobs stay parked until you close it: holdfast breakers close gateway"
    )
    await hf.queues.pause("default")
    assert (await hf.jobs.why(job.id)).code is Reason.QUEUE_PAUSED


async def test_a_breaker_that_lets_its_jobs_go(hf: Holdfast) -> None:
    @hf.job(breaker="gateway")
    async def call() -> None: ...

    await hf.breakers.open("gateway")
    job, other = await call.enqueue(), await call.enqueue()
    store = await full_store(hf)
    await store.park(100)
    await hf.breakers.close("gateway")
    await seen_worker(hf)
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.BREAKER_UNPARKING
    assert why.sentence == (
        "breaker gateway has closed, and workers are releasing the jobs it had parked; 2 are still"
        " parked"
    )
    await store.park(1)
    told = {(await hf.jobs.why(each.id)).code for each in (job, other)}
    assert told == {Reason.BREAKER_UNPARKING, Reason.NEXT}
    await store.park(100)
    assert (await hf.jobs.why(job.id)).code is Reason.NEXT


async def test_a_suspect_is_not_held_by_its_breaker(hf: Holdfast) -> None:
    @hf.job(breaker="gateway")
    async def call() -> None: ...

    job = await call.enqueue()
    await make_suspects(hf, [job])
    await hf.breakers.open("gateway")
    await seen_worker(hf)
    assert (await hf.jobs.why(job.id)).code is Reason.SUSPECT


async def test_leased(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    async with serving(hf):
        why = await answered(hf, job.id, Reason.LEASED)
        (seen,) = await hf.workers.list()
        assert why.sentence.startswith(f"it is leased by {seen.id} until ")
        assert re.search(r"\(in \d+ s\): attempt 1 of 5, started at ", why.sentence)
        assert why.facts["worker"] == seen.id
        hold.gate.set()
        await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_lease_that_ran_out(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(queue="mail").enqueue()
    await claim(hf, lease_seconds=0.01)
    why = await answered(hf, job.id, Reason.LEASE_EXPIRED)
    assert why.sentence.startswith("the lease of idle expired at ")
    assert why.sentence.endswith("there is no live worker to reclaim the job: start one")


async def test_a_lease_that_ran_out_beside_a_live_worker(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(queue="mail").enqueue()
    # Its row alone: a worker that runs would take the job back at once.
    await (await full_store(hf)).register(worker(queues={"images": None}), Load())
    await claim(hf, lease_seconds=0.01)
    why = await answered(hf, job.id, Reason.LEASE_EXPIRED)
    assert why.sentence.endswith("a live worker reclaims the job within seconds")


async def test_a_lease_of_a_worker_that_is_lost(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    await (await full_store(hf)).register(worker(id="idle", lease_seconds=0.001), Load())
    await claim(hf)

    async def told() -> bool:
        return "; that worker is lost, last seen at" in (await hf.jobs.why(job.id)).sentence

    await wait_until(told, "that the holder is lost")


async def test_a_suspect(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.enqueue()
    await make_suspects(hf, [job])
    assert (await hf.jobs.why(job.id)).code is Reason.NO_WORKER
    able = worker(queues=None, names=tuple(hf.names))
    await (await full_store(hf)).register(able, Load(100))
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.SUSPECT
    assert why.sentence.startswith("it is a suspect: its process died 2 times while running it")
    assert "waits in quarantine for a process of its own" in why.sentence


async def test_expired(hf: Holdfast, hold: Hold) -> None:
    job = await hold.job.options(expires_in_seconds=0.001).enqueue()
    why = await answered(hf, job.id, Reason.EXPIRED)
    assert "and will not run: a worker will cancel it" in why.sentence
    await (await full_store(hf)).reclaim(10)
    why = await hf.jobs.why(job.id)
    assert why.code is Reason.EXPIRED
    assert "before it ran, and was canceled at" in why.sentence


async def test_ended(hf: Holdfast, hold: Hold) -> None:
    @hf.job
    async def refuse() -> None:
        raise Permanent("no such document", code="NOT_FOUND")

    hold.gate.set()
    good, bad = await hold.job.enqueue(), await refuse.enqueue()
    await hf.run_worker(until_empty=True)
    why = await hf.jobs.why(good.id)
    finished_at = (await hf.get(good.id)).finished_at
    assert why.code is Reason.ENDED
    assert why.sentence.startswith("it ended as succeeded at ")
    assert why.facts["ended_at"] == finished_at
    why = await hf.jobs.why(bad.id)
    assert why.code is Reason.ENDED
    assert why.sentence.startswith("it ended as failed at ")
    assert ": NOT_FOUND: no such document; to enqueue it again:" in why.sentence


async def test_the_command_says_the_sentence_in_one_line(hf: Holdfast, store_url: str) -> None:
    @hf.job
    async def refuse() -> None:
        raise Permanent("\x1b[31mred", code="RED")

    job = await refuse.enqueue()
    found = json.loads(await command("jobs", "why", str(job.id), "--json", url=store_url))
    assert (found["job_id"], found["code"]) == (str(job.id), "no_worker")
    assert (found["facts"]["live_workers"], found["facts"]["queue"]) == (0, "default")
    await hf.run_worker(until_empty=True)
    told = await command("jobs", "why", str(job.id), url=store_url)
    assert told.startswith("it ended as failed at ")
    assert ": RED: \\x1b[31mred; to enqueue it again: holdfast jobs retry" in told
    assert told.count("\n") == 1
