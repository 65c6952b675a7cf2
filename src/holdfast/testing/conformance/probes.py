"""Probes: while a breaker is open, one of its jobs is sent ahead at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, Claim, QueueControl
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.breakers import (
    PROBE_SECONDS,
    breaker_seen,
    held_job,
    hold_all,
    open_by_failures,
    struck,
)
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Needs,
    Suite,
    claim,
    claim_one,
    enqueue,
    failure,
    needs,
    new_id,
    new_job,
    recorded,
    release,
    settlement,
    success,
)


async def probe(
    store: Store,
    limit: int = 100,
    *,
    names: Sequence[str] = ("job",),
    queues: Sequence[str] | None = None,
    except_queues: Sequence[str] = (),
    worker: str = "worker",
) -> Sequence[Claimed]:
    return await store.claim_probes(
        Claim(
            worker=worker,
            limit=limit,
            lease_seconds=LEASE_SECONDS,
            names=names,
            queues=queues,
            except_queues=except_queues,
        )
    )


def refund(job: Claimed) -> Settlement:
    """The end of a probe that failed while its breaker was open."""
    return settlement(job, State.QUEUED, attempt_back=True, snoozed=True, outcome="released")


def aged(number: int, lot: int) -> UUID:
    """An id that is the newer the higher its number is, with the end that is its lot."""
    return UUID(int=(new_id().int >> 80 << 16 | number) << 64 | lot)


async def hold_some(store: Store, jobs: int, key: str = "gateway", **changes: object) -> None:
    """Open a breaker and let it hold so many jobs."""
    await open_by_failures(store, key)
    await store.enqueue([new_job(breaker=key, **changes) for _ in range(jobs)])
    assert await hold_all(store) == jobs


class Probing(Suite):
    all_need: Needs = (Breakers,)

    async def test_a_probe_is_a_lease_of_one_held_job(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        job_id = await held_job(store, queue="q", tenant="t", trace="00-1-2-01")
        await harness.advance(PROBE_SECONDS + 1)
        before = await recorded(store, job_id)
        (job,) = await probe(other, worker="somebody")
        assert (job.id, job.probe, job.breaker) == (job_id, True, "gateway")
        assert (job.fence, job.attempt, job.queue, job.tenant) == (1, 1, "q", "t")
        assert job.trace == "00-1-2-01"
        found = await recorded(store, job_id)
        assert (found.state, found.lease_owner) == (State.RUNNING, "somebody")
        assert found.run_at == before.run_at
        assert (await breaker_seen(store)).parked == 0
        assert await other.settle([success(job)]) == []

    async def test_probes_are_as_far_apart_as_the_breaker_says(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await hold_some(store, 5)
        assert await probe(store) == []
        for _ in range(3):
            await harness.advance(PROBE_SECONDS + 1)
            assert len(await probe(store)) == 1
            assert await probe(store) == []
            assert await probe(other) == []
        assert (await breaker_seen(store)).parked == 2

    async def test_a_step_of_holding_tells_when_the_next_probe_is_due(
        self, store: Store, harness: Harness
    ) -> None:
        assert (await store.park(10)).probe_in_seconds is None
        await store.strike([struck("well")])
        assert (await store.park(10)).probe_in_seconds is None
        await hold_some(store, 1)
        first = (await store.park(10)).probe_in_seconds
        assert first is not None
        assert 0 < first <= PROBE_SECONDS
        await harness.advance(PROBE_SECONDS + 1)
        await open_by_failures(store, "later")
        overdue = (await store.park(10)).probe_in_seconds
        assert overdue is not None
        assert overdue <= 0
        assert len(await probe(store)) == 1
        again = (await store.park(10)).probe_in_seconds
        assert again is not None
        assert 0 < again <= PROBE_SECONDS
        await store.close_breaker("gateway")
        await store.close_breaker("later")
        assert (await store.park(10)).probe_in_seconds is None

    async def test_of_all_who_ask_at_once_one_gets_the_probe(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await hold_some(store, 5)
        await harness.advance(PROBE_SECONDS + 1)
        answers = await asyncio.gather(*(probe(instance) for instance in (store, other) * 3))
        assert sum(len(answer) for answer in answers) == 1

    async def test_every_breaker_has_its_own_probe_within_the_limit_of_the_claim(
        self, store: Store, harness: Harness
    ) -> None:
        for key in ("a", "b", "c"):
            await hold_some(store, 2, key)
        await harness.advance(PROBE_SECONDS + 1)
        first = await probe(store, 2)
        second = await probe(store, 2)
        assert (len(first), len(second)) == (2, 1)
        assert sorted(str(job.breaker) for job in (*first, *second)) == ["a", "b", "c"]
        assert await probe(store) == []

    async def test_the_held_jobs_take_turns_at_being_sent_ahead(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 3)
        sent = []
        for _ in range(6):
            await harness.advance(PROBE_SECONDS + 1)
            (job,) = await probe(store)
            sent.append(job.id)
            await store.settle([release(job)])
            assert await hold_all(store) == 1
        assert len({*sent[:3]}) == 3
        assert {*sent[3:]} == {*sent[:3]}

    async def test_the_newest_job_and_one_drawn_by_lot_are_sent_ahead_in_turn(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        lots = (3, 2, 1, 4, 5)
        ids = [aged(number, lot) for number, lot in enumerate(lots)]
        await store.enqueue([new_job(id=job_id, breaker="gateway") for job_id in ids])
        assert await hold_all(store) == len(ids)
        sent = []
        for _ in ids:
            await harness.advance(PROBE_SECONDS + 1)
            sent += [job.id for job in await probe(store)]
        assert sent == [ids[number] for number in (4, 2, 3, 1, 0)]

    async def test_a_job_that_never_ran_is_sent_ahead_before_those_that_failed(
        self, store: Store, harness: Harness
    ) -> None:
        await store.enqueue([new_job(id=aged(1, 0), breaker="gateway")])
        (failed,) = await claim(store)
        await store.settle([failure(failed)])
        await store.enqueue([new_job(breaker="gateway") for _ in range(2)])
        await open_by_failures(store)
        assert await hold_all(store) == 3
        for _ in range(2):
            await harness.advance(PROBE_SECONDS + 1)
            (job,) = await probe(store)
            assert job.id != failed.id
            await store.settle([refund(job)])
            await hold_all(store)
        for number in range(2):
            late = aged(number, 2**32 - 1)
            await store.enqueue([new_job(id=late, breaker="gateway")])
            await hold_all(store)
            await harness.advance(PROBE_SECONDS + 1)
            assert [job.id for job in await probe(store)] == [late]

    async def test_a_probe_says_how_often_its_job_was_sent_ahead(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1)
        for times in (1, 2, 3):
            await harness.advance(PROBE_SECONDS + 1)
            (job,) = await probe(store)
            assert (job.probes, job.probe) == (times, True)
            await store.settle([refund(job)])
            assert await hold_all(store) == 1
            found = await store.circumstances(job.id)
            assert found is not None
            assert found.probes == times
        await store.close_breaker("gateway")
        await hold_all(store)
        (job,) = await claim(store)
        assert (job.probes, job.probe) == (0, False)

    async def test_a_probe_that_comes_back_waits_with_the_others(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1)
        await harness.advance(PROBE_SECONDS + 1)
        (job,) = await probe(store)
        assert await store.strike([struck()]) == [True]
        await store.settle([release(job)])
        assert await claim(store) == []
        assert await hold_all(store) == 1
        assert (await recorded(store, job.id)).attempts == 0
        assert (await breaker_seen(store)).is_open

    async def test_a_lost_probe_is_followed_by_the_next(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await hold_some(store, 2)
        await harness.advance(PROBE_SECONDS + 1)
        (lost,) = await probe(store, worker="dead one")
        assert len(await other.reclaim(10, "dead one", "died")) == 1
        await harness.advance(PROBE_SECONDS + 1)
        (following,) = await probe(other)
        assert following.id != lost.id

    async def test_only_jobs_that_the_worker_can_run_are_sent_ahead(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1, name="resize", queue="images")
        await harness.advance(PROBE_SECONDS + 1)
        due_at = (await breaker_seen(store)).next_probe_at
        assert await probe(store) == []
        assert await probe(store, names=("resize",), queues=["mail"]) == []
        assert await probe(store, names=("resize",), except_queues=["images"]) == []
        # Who can't run any takes the turn from nobody.
        assert (await breaker_seen(store)).next_probe_at == due_at
        (job,) = await probe(store, names=("job", "resize"), queues=["mail", "images"])
        assert job.name == "resize"

    async def test_the_job_that_fits_is_found_among_others_wherever_the_turn_is(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        jobs = [await held_job(store, name=name) for name in ("job", "other", "other")]
        await harness.advance(PROBE_SECONDS + 1)
        (other,) = await probe(store, names=("other",))
        assert other.id in jobs[1:]
        await harness.advance(PROBE_SECONDS + 1)
        (first,) = await probe(store)
        assert first.id == jobs[0]

    @needs(QueueControl)
    async def test_no_job_is_sent_ahead_from_a_paused_or_full_queue(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1, "a", queue="q")
        await hold_some(store, 1, "b", queue="q")
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

    async def test_nothing_is_sent_ahead_of_a_breaker_opened_by_hand_or_closed(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 2, "by hand")
        await hold_some(store, 2, "closed")
        await store.open_breaker("by hand", "ann", None)
        await store.close_breaker("closed")
        await harness.advance(PROBE_SECONDS + 1)
        assert await probe(store) == []

    async def test_a_job_that_comes_late_is_sent_ahead_at_once(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        await harness.advance(10 * PROBE_SECONDS)
        assert await probe(store) == []
        job_id = await held_job(store)
        assert [job.id for job in await probe(store)] == [job_id]

    async def test_held_jobs_are_awaited_if_they_may_run_within_the_time(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1, queue="q")
        assert not await store.awaited(["job"], None, 0)
        assert await store.awaited(["job"], None, PROBE_SECONDS)
        assert await store.awaited(["job"], ["q"], PROBE_SECONDS)
        assert not await store.awaited(["other"], None, PROBE_SECONDS)
        assert not await store.awaited(["job"], ["other"], PROBE_SECONDS)
        await store.open_breaker("gateway", None, None)
        assert not await store.awaited(["job"], None, 10 * PROBE_SECONDS)
        await store.close_breaker("gateway")
        assert await store.awaited(["job"], None, 0)

    async def test_an_expired_job_that_is_sent_ahead_says_so(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 1, expires_in_seconds=5.0)
        await harness.advance(PROBE_SECONDS + 1)
        (job,) = await probe(store)
        assert job.expired

    async def test_a_closed_breaker_lets_the_probe_and_the_others_end(
        self, store: Store, harness: Harness
    ) -> None:
        await hold_some(store, 3)
        await harness.advance(PROBE_SECONDS + 1)
        (first,) = await probe(store)
        assert await store.close_breaker("gateway")
        await store.settle([success(first)])
        assert await hold_all(store) == 2
        others = await claim(store)
        assert [job.probe for job in others] == [False] * 2
        assert await store.settle([success(job) for job in others]) == []
        await enqueue(store, breaker="gateway")
        assert len(await claim(store)) == 1
