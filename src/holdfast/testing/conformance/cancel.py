"""Cancel, retry and requeue."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.errors import DuplicateJob
from holdfast.domain.job import Lost
from holdfast.domain.states import ENDED, State
from holdfast.stores.protocol import Canceled, History
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    RICH,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    failure,
    job_in,
    kept_attempts,
    needs,
    new_id,
    recorded,
    success,
)


class Canceling(Suite):
    async def test_a_waiting_job_is_canceled(self, store: Store) -> None:
        job_id = await enqueue(store, delay_seconds=60.0)
        assert await store.cancel([job_id]) == [Canceled(job_id, False)]
        found = await recorded(store, job_id)
        assert (found.state, found.error_code) == (State.CANCELED, "CANCELED")
        assert (found.fence, found.attempts) == (1, 0)
        assert await kept_attempts(store, job_id) == []
        assert await claim(store) == []

    async def test_canceling_a_running_job_ends_its_lease(self, store: Store, other: Store) -> None:
        job = await claim_one(store)
        assert await other.cancel([job.id]) == [Canceled(job.id, True)]
        found = await recorded(store, job.id)
        assert (found.state, found.error_code) == (State.CANCELED, "CANCELED")
        assert (found.fence, found.lease_owner) == (job.fence + 1, None)
        lost = [Lost(job.id, job.fence, State.CANCELED)]
        assert await store.renew([job.lease], LEASE_SECONDS) == lost
        assert await store.settle([success(job)]) == lost

    @pytest.mark.parametrize(
        ("by", "because", "text"),
        [
            ("ann", "wrong file", "canceled by ann: wrong file"),
            ("ann", None, "canceled by ann"),
            (None, "wrong file", "canceled: wrong file"),
        ],
    )
    async def test_a_cancel_records_who_did_it_and_why(
        self, store: Store, by: str | None, because: str | None, text: str
    ) -> None:
        waiting, running = await enqueue(store, delay_seconds=60.0), await claim_one(store)
        assert len(await store.cancel([waiting, running.id], by=by, because=because)) == 2
        for job_id in (waiting, running.id):
            found = await recorded(store, job_id)
            assert (found.error_code, found.error_text) == ("CANCELED", text)
        for attempt in await kept_attempts(store, running.id):
            assert (attempt.error_code, attempt.error_text) == ("CANCELED", text)

    @needs(History, Room.TIMES)
    async def test_a_canceled_attempt_is_recorded(self, store: Store) -> None:
        job = await claim_one(store)
        await store.cancel([job.id])
        (attempt,) = await store.attempts(job.id)
        assert (attempt.outcome, attempt.fence, attempt.worker) == ("canceled", job.fence, "worker")
        assert (await recorded(store, job.id)).finished_at is not None

    async def test_waiting_only_cancels_no_running_job(self, store: Store) -> None:
        waiting, running = await enqueue(store, delay_seconds=60.0), await claim_one(store)
        ids = [waiting, running.id]
        assert await store.cancel(ids, waiting_only=True) == [Canceled(waiting, False)]
        assert await store.settle([success(running)]) == []
        assert (await recorded(store, waiting)).state is State.CANCELED

    async def test_cancel_skips_jobs_that_ended_or_never_existed(self, store: Store) -> None:
        ended = [await job_in(store, state) for state in ENDED]
        waiting, running = await enqueue(store), (await claim_one(store)).id
        canceled = await store.cancel([*ended, new_id(), running, waiting, running])
        assert sorted(canceled) == sorted([Canceled(waiting, False), Canceled(running, True)])
        assert await store.cancel([waiting, running]) == []
        assert await store.cancel([]) == []

    async def test_many_jobs_are_canceled_at_once(self, store: Store) -> None:
        ids = await enqueue_many(store, 600)
        running = {job.id for job in await claim(store, len(ids) // 3)}
        canceled = await store.cancel(ids)
        assert {one.job_id for one in canceled} == set(ids)
        assert {one.job_id for one in canceled if one.was_running} == running

    async def test_retry_makes_a_waiting_job_due_now(self, store: Store) -> None:
        job_id = await enqueue(store, delay_seconds=3600.0)
        assert await claim(store) == []
        assert await store.retry(job_id)
        assert (await recorded(store, job_id)).fence == 0
        (job,) = await claim(store)
        await store.settle([failure(job, delay_seconds=3600)])
        assert await store.retry(job_id)
        assert [again.attempt for again in await claim(store)] == [2]

    async def test_retry_changes_only_waiting_jobs(self, store: Store) -> None:
        for state in set(State) - {State.QUEUED}:
            job_id = await job_in(store, state)
            before = await recorded(store, job_id)
            assert not await store.retry(job_id)
            assert await recorded(store, job_id) == before
        assert not await store.retry(new_id())

    @pytest.mark.parametrize("state", sorted(ENDED))
    async def test_a_requeued_job_has_all_its_attempts(self, store: Store, state: State) -> None:
        old_id, new = await job_in(store, state), new_id()
        assert await store.requeue(old_id, new)
        # A store whose records belong to others queues the same one again.
        found = await store.get(new) or await recorded(store, old_id)
        assert (found.state, found.attempts) == (State.QUEUED, 0)
        assert (found.error_code, found.result) == (None, None)
        (claimed,) = await claim(store)
        assert (claimed.id, claimed.attempt) == (found.id, 1)

    @pytest.mark.parametrize("state", sorted(ENDED))
    @needs(Room.NEW_IDS)
    async def test_a_requeue_names_the_old_job(self, store: Store, state: State) -> None:
        old_id, new = await job_in(store, state), new_id()
        old = await recorded(store, old_id)
        assert await store.requeue(old_id, new)
        found = await recorded(store, new)
        assert found.requeued_from == old_id
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)
        assert (found.error_code, found.result, found.finished_at) == (None, None, None)
        assert found.run_at == found.created_at
        assert await recorded(store, old_id) == old
        assert [job.id for job in await claim(store)] == [new]

    @needs(Room.QUEUES, Room.OPTIONS)
    async def test_a_requeue_copies_the_job(self, store: Store) -> None:
        old, new = await job_in(store, State.SUCCEEDED, **RICH), new_id()
        assert await store.requeue(old, new)
        found = await recorded(store, new)
        assert (found.name, found.queue, found.priority) == ("job", "q", 7)
        assert (found.arguments, found.max_attempts) == ({"a": [1, "ü"]}, 9)
        assert (found.tenant, found.correlation_id, found.tags) == ("t", "c", ("x", "y z"))
        assert found.parent_id == RICH["parent_id"]
        assert found.expires_at is None

    @needs(Room.NEW_IDS, Room.OPTIONS)
    async def test_a_requeue_can_change_the_arguments_alone(self, store: Store) -> None:
        old, new = await job_in(store, State.SUCCEEDED, **RICH), new_id()
        assert await store.requeue(old, new, arguments=b'{"b": [2]}')
        found = await recorded(store, new)
        assert (found.arguments, found.queue, found.tags) == ({"b": [2]}, "q", ("x", "y z"))
        assert (await recorded(store, old)).arguments == {"a": [1, "ü"]}

    @needs(History, Room.NEW_IDS)
    async def test_a_job_is_requeued_twice_only_if_asked(self, store: Store, other: Store) -> None:
        old, untouched = await job_in(store, State.DEAD), await job_in(store, State.FAILED)
        first, second, third = new_id(), new_id(), new_id()
        assert await store.requeue(old, first, once=True)
        assert not await other.requeue(old, second, once=True)
        assert await store.get(second) is None
        assert await other.requeued([old, untouched, new_id()]) == {old: first}
        assert await other.requeue(old, third)
        assert await store.requeued([old]) == {old: third}
        assert not await store.requeue(old, second, once=True)
        assert await store.requeued([]) == {}

    async def test_one_of_many_requeues_once_wins(self, store: Store, other: Store) -> None:
        old = await job_in(store, State.DEAD)
        answers = await asyncio.gather(
            *[each.requeue(old, new_id(), once=True) for each in (store, other) * 5]
        )
        assert sorted(answers) == [False] * 9 + [True]
        assert len(await claim(store)) == 1

    @needs(History, Room.NEW_IDS)
    async def test_a_refused_requeue_is_not_remembered(self, store: Store) -> None:
        ended, existing = await job_in(store, State.DEAD), await enqueue(store)
        with pytest.raises(DuplicateJob):
            await store.requeue(ended, existing, once=True)
        assert await store.requeued([ended]) == {}
        assert await store.requeue(ended, new_id(), once=True)

    async def test_only_ended_jobs_are_requeued(self, store: Store) -> None:
        for job_id in (await enqueue(store), (await claim_one(store)).id, new_id()):
            new = new_id()
            assert not await store.requeue(job_id, new)
            assert await store.get(new) is None

    @needs(Room.NEW_IDS)
    async def test_a_requeue_to_an_id_that_exists_is_refused(self, store: Store) -> None:
        ended, existing = await job_in(store, State.DEAD), await enqueue(store)
        with pytest.raises(DuplicateJob):
            await store.requeue(ended, existing)
        assert (await recorded(store, existing)).requeued_from is None
