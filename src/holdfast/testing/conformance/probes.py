"""Probes: while a breaker is open, one of its parked jobs runs ahead at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any
from uuid import UUID

from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, QueueControl
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.breakers import (
    PROBE_SECONDS,
    breaker_status,
    open_by_failures,
    park_all,
    parked_job,
    struck,
)
from holdfast.testing.conformance.harness import (
    Harness,
    Suite,
    circumstances,
    claim,
    claim_one,
    enqueue,
    failure,
    needs,
    new_id,
    new_job,
    recorded,
    release,
    request,
    settlement,
    success,
)


async def probe(store: Store, limit: int = 100, **changes: Any) -> Sequence[Claimed]:
    return await store.claim_probes(request(limit, **changes))


async def next_probe(store: Store, harness: Harness, **changes: Any) -> Claimed:
    """Wait until the next probe is due, and claim it."""
    await harness.advance(PROBE_SECONDS + 1)
    (job,) = await probe(store, **changes)
    return job


async def due_seconds(store: Store) -> float:
    """Return when the next probe is due, as a worker that parks jobs learns it."""
    seconds = (await store.park(10)).probe_in_seconds
    return inf if seconds is None else seconds


def refund(job: Claimed) -> Settlement:
    """The end of a probe that failed while its breaker was open."""
    return settlement(job, State.QUEUED, attempt_back=True, snoozed=True, outcome="released")


def aged(number: int, lot: int) -> UUID:
    """Make an ID: a higher number makes it newer, and its end is the lot that is drawn."""
    return UUID(int=(new_id().int >> 80 << 16 | number) << 64 | lot)


async def park_some(store: Store, jobs: int, key: str = "gateway", **changes: Any) -> None:
    """Open a breaker and park this many of its jobs."""
    await open_by_failures(store, key)
    await store.enqueue([new_job(breaker=key, **changes) for _ in range(jobs)])
    assert await park_all(store) == jobs


@needs(Breakers)
class Probing(Suite):
    async def test_a_probe_leases_one_parked_job(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        job_id = await parked_job(store, queue="q", tenant="t", trace="00-1-2-01")
        await harness.advance(PROBE_SECONDS + 1)
        before = await recorded(store, job_id)
        (job,) = await probe(other, worker="somebody")
        assert (job.id, job.probe, job.breaker) == (job_id, True, "gateway")
        assert (job.fence, job.attempt, job.queue, job.tenant) == (1, 1, "q", "t")
        assert job.trace == "00-1-2-01"
        found = await recorded(store, job_id)
        assert (found.state, found.lease_owner) == (State.RUNNING, "somebody")
        assert found.run_at == before.run_at
        assert (await breaker_status(store)).parked == 0
        assert await other.settle([success(job)]) == []

    async def test_probes_keep_their_interval(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await park_some(store, 5)
        assert await probe(store) == []
        for _ in range(3):
            await harness.advance(PROBE_SECONDS + 1)
            assert len(await probe(store)) == 1
            assert await probe(store) == []
            assert await probe(other) == []
        assert (await breaker_status(store)).parked == 2

    async def test_parking_says_when_a_probe_is_due(self, store: Store, harness: Harness) -> None:
        assert await due_seconds(store) == inf
        await store.strike([struck("well")])
        assert await due_seconds(store) == inf
        await park_some(store, 1)
        assert 0 < await due_seconds(store) <= PROBE_SECONDS
        await harness.advance(PROBE_SECONDS + 1)
        await open_by_failures(store, "later")
        assert await due_seconds(store) <= 0
        assert len(await probe(store)) == 1
        assert 0 < await due_seconds(store) <= PROBE_SECONDS
        await store.close_breaker("gateway")
        await store.close_breaker("later")
        assert await due_seconds(store) == inf

    async def test_one_of_many_claims_gets_the_probe(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await park_some(store, 5)
        await harness.advance(PROBE_SECONDS + 1)
        answers = await asyncio.gather(*(probe(instance) for instance in (store, other) * 3))
        assert sum(len(answer) for answer in answers) == 1

    async def test_every_breaker_has_its_own_probe(self, store: Store, harness: Harness) -> None:
        for key in ("a", "b", "c"):
            await park_some(store, 2, key)
        await harness.advance(PROBE_SECONDS + 1)
        first = await probe(store, 2)
        second = await probe(store, 2)
        assert (len(first), len(second)) == (2, 1)
        assert sorted(str(job.breaker) for job in (*first, *second)) == ["a", "b", "c"]
        assert await probe(store) == []

    async def test_parked_jobs_take_turns_as_probes(self, store: Store, harness: Harness) -> None:
        await park_some(store, 3)
        sent = []
        for _ in range(6):
            job = await next_probe(store, harness)
            sent.append(job.id)
            await store.settle([release(job)])
            assert await park_all(store) == 1
        assert len({*sent[:3]}) == 3
        assert {*sent[3:]} == {*sent[:3]}

    async def test_the_newest_and_a_random_job_alternate_as_probes(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        lots = (3, 2, 1, 4, 5)
        ids = [aged(number, lot) for number, lot in enumerate(lots)]
        await store.enqueue([new_job(id=job_id, breaker="gateway") for job_id in ids])
        assert await park_all(store) == len(ids)
        sent = [(await next_probe(store, harness)).id for _ in ids]
        assert sent == [ids[number] for number in (4, 2, 3, 1, 0)]

    async def test_jobs_that_never_ran_probe_first(self, store: Store, harness: Harness) -> None:
        await store.enqueue([new_job(id=aged(1, 0), breaker="gateway")])
        (failed,) = await claim(store)
        await store.settle([failure(failed)])
        await store.enqueue([new_job(breaker="gateway") for _ in range(2)])
        await open_by_failures(store)
        assert await park_all(store) == 3
        for _ in range(2):
            job = await next_probe(store, harness)
            assert job.id != failed.id
            await store.settle([refund(job)])
            await park_all(store)
        for number in range(2):
            late = aged(number, 2**32 - 1)
            await store.enqueue([new_job(id=late, breaker="gateway")])
            await park_all(store)
            assert (await next_probe(store, harness)).id == late

    async def test_a_probe_counts_its_turns(self, store: Store, harness: Harness) -> None:
        await park_some(store, 1)
        for times in (1, 2, 3):
            job = await next_probe(store, harness)
            assert (job.probes, job.probe) == (times, True)
            await store.settle([refund(job)])
            assert await park_all(store) == 1
            assert (await circumstances(store, job.id)).probes == times
        await store.close_breaker("gateway")
        await park_all(store)
        (job,) = await claim(store)
        assert (job.probes, job.probe) == (0, False)

    async def test_a_failed_probe_is_parked_again(self, store: Store, harness: Harness) -> None:
        await park_some(store, 1)
        job = await next_probe(store, harness)
        assert await store.strike([struck()]) == [True]
        await store.settle([release(job)])
        assert await claim(store) == []
        assert await park_all(store) == 1
        assert (await recorded(store, job.id)).attempts == 0
        assert (await breaker_status(store)).is_open

    async def test_a_lost_probe_does_not_stop_the_next(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await park_some(store, 2)
        lost = await next_probe(store, harness, worker="dead one")
        assert len(await other.reclaim(10, "dead one", "died")) == 1
        assert (await next_probe(other, harness)).id != lost.id

    async def test_a_worker_probes_what_it_can_run(self, store: Store, harness: Harness) -> None:
        await park_some(store, 1, name="resize", queue="images")
        await harness.advance(PROBE_SECONDS + 1)
        due_at = (await breaker_status(store)).next_probe_at
        assert await probe(store) == []
        assert await probe(store, names=("resize",), queues=["mail"]) == []
        assert await probe(store, names=("resize",), except_queues=["images"]) == []
        # A worker that can't run any of them does not use up the turn.
        assert (await breaker_status(store)).next_probe_at == due_at
        (job,) = await probe(store, names=("job", "resize"), queues=["mail", "images"])
        assert job.name == "resize"

    async def test_a_fitting_job_is_always_found(self, store: Store, harness: Harness) -> None:
        await open_by_failures(store)
        jobs = [await parked_job(store, name=name) for name in ("job", "other", "other")]
        assert (await next_probe(store, harness, names=("other",))).id in jobs[1:]
        assert (await next_probe(store, harness)).id == jobs[0]

    @needs(QueueControl)
    async def test_a_stopped_queue_sends_no_probe(self, store: Store, harness: Harness) -> None:
        await park_some(store, 1, "a", queue="q")
        await park_some(store, 1, "b", queue="q")
        await harness.advance(PROBE_SECONDS + 1)
        await store.pause("q", None, None)
        assert await probe(store) == []
        await store.resume("q")
        running = await claim_one(store, queue="q")
        await store.cap("q", 1)
        assert await probe(store) == []
        await store.settle([success(running)])
        assert len(await probe(store)) == 1
        assert await probe(store) == []

    async def test_breakers_opened_by_hand_or_closed_send_no_probe(
        self, store: Store, harness: Harness
    ) -> None:
        await park_some(store, 2, "by hand")
        await park_some(store, 2, "closed")
        await store.open_breaker("by hand", "ann", None)
        await store.close_breaker("closed")
        await harness.advance(PROBE_SECONDS + 1)
        assert await probe(store) == []

    async def test_an_overdue_probe_starts_at_once(self, store: Store, harness: Harness) -> None:
        await open_by_failures(store)
        await harness.advance(10 * PROBE_SECONDS)
        assert await probe(store) == []
        job_id = await parked_job(store)
        assert [job.id for job in await probe(store)] == [job_id]

    async def test_parked_jobs_are_awaited_until_their_probe(self, store: Store) -> None:
        await park_some(store, 1, queue="q")
        assert not await store.awaited(["job"], None, 0)
        assert await store.awaited(["job"], None, PROBE_SECONDS)
        assert await store.awaited(["job"], ["q"], PROBE_SECONDS)
        assert not await store.awaited(["other"], None, PROBE_SECONDS)
        assert not await store.awaited(["job"], ["other"], PROBE_SECONDS)
        await store.open_breaker("gateway", None, None)
        assert not await store.awaited(["job"], None, 10 * PROBE_SECONDS)
        await store.close_breaker("gateway")
        assert await store.awaited(["job"], None, 0)

    async def test_a_probe_says_if_its_job_expired(self, store: Store, harness: Harness) -> None:
        await park_some(store, 1, expires_in_seconds=5.0)
        assert (await next_probe(store, harness)).expired

    async def test_after_a_close_all_jobs_run(self, store: Store, harness: Harness) -> None:
        await park_some(store, 3)
        first = await next_probe(store, harness)
        assert await store.close_breaker("gateway")
        await store.settle([success(first)])
        assert await park_all(store) == 2
        others = await claim(store)
        assert [job.probe for job in others] == [False] * 2
        assert await store.settle([success(job) for job in others]) == []
        await enqueue(store, breaker="gateway")
        assert len(await claim(store)) == 1
