"""History: where ended jobs go, how they are found there, and when they are deleted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.domain.errors import DuplicateJob
from holdfast.domain.job import DEFAULT_TENANT, Count, Filter, Job, Lost, Receipt
from holdfast.domain.limits import PAGE_LOOK_MAX
from holdfast.domain.retention import Retention, parse_rules
from holdfast.domain.states import ENDED, State
from holdfast.stores import protocol
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import ProgressNotes
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    RICH,
    Harness,
    Suite,
    claim,
    claim_one,
    end,
    enqueue,
    failure,
    job_in,
    needs,
    new_id,
    new_job,
    recorded,
    success,
)

DAY_SECONDS = 86400.0
EVERYTHING = Filter()


async def end_in_place(store: Store, harness: Harness, state: State, **changes: object) -> UUID:
    """End a job as a worker of an older version does: its row stays among the live ones."""
    job = await claim_one(store, **changes)
    assert await harness.write(
        job.id,
        {
            "state": str(state),
            "fence": job.fence + 1,
            "lease_owner": None,
            "lease_expires_at": None,
            "finished_at": (await recorded(store, job.id)).started_at,
        },
    )
    return job.id


async def listed(store: Store, filter: Filter = EVERYTHING) -> list[UUID]:
    return [job.id for job in (await store.page(filter, 100)).jobs]


@needs(protocol.History)
class History(Suite):
    @pytest.mark.parametrize("state", sorted(ENDED))
    @needs(ProgressNotes)
    async def test_a_job_that_ends_keeps_its_fields(self, store: Store, state: State) -> None:
        keyed = {"idempotency_key": "k", "body_hash": b"h", "key_kept_seconds": 60.0}
        job = await claim_one(store, **RICH, **keyed)
        assert await store.progress(job.lease, b'{"done": 1}')
        before = await recorded(store, job.id)
        await end(store, job, state)
        after = await recorded(store, job.id)
        assert after.finished_at is not None
        assert before == msgspec.structs.replace(
            after,
            state=State.RUNNING,
            fence=before.fence,
            lease_owner=before.lease_owner,
            lease_expires_at=before.lease_expires_at,
            finished_at=None,
            result=None,
            error_code=None,
            error_text=None,
        )

    async def test_live_and_ended_jobs_are_listed_in_one_order(self, store: Store) -> None:
        ids = [await job_in(store, state) for state in (*State, *State)]
        seen: list[UUID] = []
        after: UUID | None = None
        while len(seen) < len(ids):
            page = await store.page(EVERYTHING, 5, after)
            seen += [job.id for job in page.jobs]
            after = page.after
        assert (seen, after) == (ids[::-1], None)

    async def test_filters_find_ended_jobs(self, store: Store) -> None:
        marks: dict[str, Any] = {"queue": "q", "name": "n", "tenant": "t", "tags": ("a",)}
        marks |= {"correlation_id": "c", "parent_id": new_id()}
        job = await claim_one(store, **marks)
        await store.settle([failure(job, State.DEAD)])
        await store.settle([success(await claim_one(store))])
        live = await enqueue(store, **marks)
        for wanted in (
            Filter(queue="q"),
            Filter(name="n"),
            Filter(tenant="t"),
            Filter(tag="a"),
            Filter(correlation_id="c"),
            Filter(parent_id=marks["parent_id"]),
            Filter(queue="q", name="n", tenant="t", tag="a", correlation_id="c"),
        ):
            assert await listed(store, wanted) == [live, job.id]
            dead = msgspec.structs.replace(wanted, states=(State.DEAD,))
            assert await listed(store, dead) == [job.id]
            assert await listed(store, msgspec.structs.replace(dead, queue="other")) == []

    async def test_a_rare_match_is_found_in_bounded_steps(self, store: Store) -> None:
        rare = await claim_one(store, tags=("rare",))
        await store.settle([success(rare)])
        jobs = [new_job() for _ in range(PAGE_LOOK_MAX)]
        await store.enqueue(jobs)
        wanted = Filter(tag="rare")
        first = await store.page(wanted, 10)
        assert (first.jobs, first.after) == ([], jobs[0].id)
        second = await store.page(wanted, 10, first.after)
        assert ([job.id for job in second.jobs], second.after) == ([rare.id], None)

    async def test_an_id_in_the_history_is_rejected(self, store: Store) -> None:
        ended = await job_in(store, State.SUCCEEDED)
        again = new_job(id=ended, id_is_chosen=True)
        keyed = msgspec.structs.replace(
            again, idempotency_key="k", body_hash=b"h", key_kept_seconds=60.0
        )
        for jobs in ([again], [new_job(), again], [keyed]):
            with pytest.raises(DuplicateJob, match=str(ended)):
                await store.enqueue(jobs)
        assert await listed(store) == [ended]
        chosen = new_job(id_is_chosen=True)
        assert (await store.enqueue([chosen]))[0].created

    async def test_jobs_that_ended_in_place_are_found(self, store: Store, harness: Harness) -> None:
        ids = {state: await end_in_place(store, harness, state) for state in sorted(ENDED)}
        live = await enqueue(store)
        assert sorted(await listed(store)) == sorted([*ids.values(), live])
        assert {(count.state, count.jobs) for count in await store.counts()} == {
            (state, 1) for state in {*ENDED, State.QUEUED}
        }
        for state, job_id in ids.items():
            found = await recorded(store, job_id)
            assert found.state is state
            assert await listed(store, Filter(states=(state,))) == [job_id]
            assert await store.cancel([job_id]) == []
            assert await store.requeue(job_id, new_id())
            with pytest.raises(DuplicateJob):
                await store.enqueue([new_job(id=job_id)])

    async def test_upkeep_moves_jobs_ended_in_place(self, store: Store, harness: Harness) -> None:
        ids = [await end_in_place(store, harness, State.DEAD, tenant="t") for _ in range(5)]
        live = await enqueue(store)
        before = [await recorded(store, job_id) for job_id in ids]
        counts = await store.counts()
        assert [await store.tidy(2) for _ in range(4)] == [2, 2, 1, 0]
        assert [await recorded(store, job_id) for job_id in ids] == before
        assert await store.counts() == counts
        assert await listed(store) == [live, *reversed(ids)]
        await harness.advance(9 * DAY_SECONDS)
        await store.tidy(100)
        assert await listed(store) == [live]

    async def test_history_is_deleted_after_retention(self, store: Store, harness: Harness) -> None:
        ended = [await job_in(store, state) for state in ENDED]
        await harness.advance(6.9 * DAY_SECONDS)
        live = await enqueue(store)
        young = await job_in(store, State.DEAD)
        assert await store.tidy(100) == 0
        assert set(await listed(store)) == {*ended, live, young}
        await harness.advance(1.2 * DAY_SECONDS)
        await store.tidy(100)
        assert set(await listed(store)) == {live, young}
        assert [await store.get(job_id) for job_id in ended] == [None] * len(ended)
        assert [await store.attempts(job_id) for job_id in ended] == [[]] * len(ended)
        assert len(await store.attempts(young)) == 1
        assert not await store.requeue(ended[0], new_id())
        assert set(await store.counts()) == {
            Count("default", State.QUEUED, 1),
            Count("default", State.DEAD, 1),
        }

    async def test_a_requeue_is_remembered_with_the_old_job(self, harness: Harness) -> None:
        rules = parse_rules("*:succeeded=1d")
        store = await harness.open_store(Retention(9 * DAY_SECONDS, rules))
        old, new = await job_in(store, State.DEAD), new_id()
        assert await store.requeue(old, new)
        (again,) = await claim(store)
        await store.settle([success(again)])
        await harness.advance(8 * DAY_SECONDS)
        await store.tidy(100)
        assert await store.get(new) is None
        assert await store.requeued([old]) == {old: new}
        assert not await store.requeue(old, new_id(), once=True)
        await harness.advance(4 * DAY_SECONDS)
        await store.tidy(100)
        assert await store.get(old) is None
        assert await store.requeued([old]) == {}
        await store.close()

    async def test_the_most_specific_retention_rule_wins(self, harness: Harness) -> None:
        rules = parse_rules("*:dead=20d, a:succeeded=2d, b:*=4d")
        store = await harness.open_store(Retention(9 * DAY_SECONDS, rules))
        kept_days = {
            await job_in(store, State.SUCCEEDED, queue="a"): 2,
            await job_in(store, State.DEAD, queue="b"): 4,
            await job_in(store, State.SUCCEEDED, queue="b"): 4,
            await job_in(store, State.SUCCEEDED, queue="c"): 9,
            await job_in(store, State.DEAD, queue="a"): 20,
        }
        # Days are deleted as a whole, so jobs kept until yesterday are gone for sure.
        passed = 0.0
        for days in (1, 3.1, 5.1, 8, 10.1, 19, 21.1):
            await harness.advance((days - passed) * DAY_SECONDS)
            passed = days
            await store.tidy(100)
            kept = {job for job, days_kept in kept_days.items() if days < days_kept}
            assert set(await listed(store)) == kept
            assert sum(count.jobs for count in await store.counts()) == len(kept)
        await store.close()

    async def test_a_job_is_kept_as_long_as_its_key(self, harness: Harness) -> None:
        store = await harness.open_store(Retention(60.0))
        day, keyed = DAY_SECONDS, new_job(idempotency_key="k", body_hash=b"h")
        await store.enqueue([msgspec.structs.replace(keyed, key_kept_seconds=3 * day)])
        await store.settle([success((await claim(store))[0])])
        await harness.advance(2 * day)
        await store.tidy(100)
        again = msgspec.structs.replace(keyed, id=new_id())
        assert await store.enqueue([again]) == [Receipt(keyed.id, False)]
        assert (await recorded(store, keyed.id)).state is State.SUCCEEDED
        await harness.advance(2 * day)
        while await store.tidy(100):
            pass
        assert await store.get(keyed.id) is None
        assert await store.enqueue([again]) == [Receipt(again.id, True)]
        await store.close()

    async def test_attempts_of_a_live_job_are_always_kept(self, harness: Harness) -> None:
        store = await harness.open_store(Retention(60.0))
        job = await claim_one(store)
        await store.settle([failure(job, State.QUEUED)])
        await harness.advance(DAY_SECONDS)
        await store.tidy(100)
        assert len(await store.attempts(job.id)) == 1
        await store.close()

    async def test_upkeep_respects_its_limit(self, store: Store, harness: Harness) -> None:
        ended = [await job_in(store, State.DEAD) for _ in range(5)]
        await harness.advance(9 * DAY_SECONDS)
        done = []
        while (step := await store.tidy(3)) == 3:
            done.append(step)
        # Five jobs and their five attempts.
        assert sum(done) + step == 2 * len(ended)
        assert await store.tidy(3) == 0
        assert await store.counts() == []

    async def test_ended_jobs_are_counted_by_queue_state_and_tenant(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        for tenant in (DEFAULT_TENANT, "t", "t"):
            await store.settle([success(await claim_one(store, tenant=tenant, queue="a"))])
        await other.settle([failure(await claim_one(other, tenant="t", queue="b"), State.DEAD)])
        await end_in_place(store, harness, State.DEAD, tenant="t", queue="b")
        for instance in (store, other, store):
            assert sorted(await instance.counts()) == [
                Count("a", State.SUCCEEDED, 3),
                Count("b", State.DEAD, 2),
            ]
            assert sorted(await instance.counts("t")) == [
                Count("a", State.SUCCEEDED, 2),
                Count("b", State.DEAD, 2),
            ]
            assert await instance.counts(DEFAULT_TENANT) == [Count("a", State.SUCCEEDED, 1)]
            assert await instance.counts("") == []
            await instance.tidy(100)

    async def test_upkeep_leaves_live_jobs_alone(self, store: Store, harness: Harness) -> None:
        waiting = await enqueue(store, delay_seconds=60 * DAY_SECONDS)
        running = await claim_one(store)
        await harness.advance(30 * DAY_SECONDS)
        before: list[Job] = [await recorded(store, each) for each in (waiting, running.id)]
        assert await store.tidy(100) == 0
        assert [await recorded(store, each) for each in (waiting, running.id)] == before

    async def test_a_lost_lease_reports_how_the_job_ended(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store)
        await store.settle([failure(job, State.FAILED)])
        lost = [Lost(job.id, job.fence, State.FAILED)]
        assert await store.renew([job.lease], LEASE_SECONDS) == lost
        assert await store.settle([success(job)]) == lost
        await harness.advance(9 * DAY_SECONDS)
        await store.tidy(100)
        assert await store.settle([success(job)]) == [Lost(job.id, job.fence, None)]

    async def test_ended_jobs_are_never_claimed(self, store: Store, harness: Harness) -> None:
        for state in ENDED:
            await job_in(store, state)
            await end_in_place(store, harness, state)
        await harness.advance(LEASE_SECONDS + 1)
        assert await store.reclaim(100) == []
        assert await claim(store) == []
        assert not await store.awaited(["job"], None, 3600)
