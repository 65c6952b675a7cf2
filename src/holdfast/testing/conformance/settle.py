"""Settle: record the end of an attempt, once, with the fence of its lease."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Attempt, Claimed, Count, Lease, Lost, Settlement
from holdfast.domain.states import ENDED, State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import History
from holdfast.testing.conformance.harness import (
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue_many,
    failure,
    job_in,
    kept_attempts,
    needs,
    new_id,
    recorded,
    release,
    settlement,
    snooze,
    success,
)


class Settling(Suite):
    async def test_a_success_ends_the_job_and_its_lease(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.settle([success(job)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.fence, found.attempts) == (State.SUCCEEDED, job.fence + 1, 1)
        assert found.result == msgspec.json.decode(self.kind.result)
        assert (found.lease_owner, found.lease_expires_at) == (None, None)

    async def test_a_refunded_attempt_is_not_counted(self, store: Store) -> None:
        job = await claim_one(store)
        for end in (release, lambda each: snooze(each, 0)):
            assert await store.settle([end(job)]) == []
            assert (await recorded(store, job.id)).attempts == 0
            (job,) = await claim(store)
            assert job.attempt == 1

    @needs(History, Room.ANY_JSON, Room.TIMES)
    async def test_a_success_records_any_json_and_its_time(self, store: Store) -> None:
        job = await claim_one(store)
        result = '{"größe": [1, "\U0001f980"]}'.encode()
        assert await store.settle([settlement(job, State.SUCCEEDED, result=result)]) == []
        found = await recorded(store, job.id)
        assert found.result == {"größe": [1, "\U0001f980"]}
        assert found.finished_at is not None

    @needs(History, Room.TIMES)
    async def test_the_successful_attempt_is_among_the_attempts(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([failure(job)])
        (second,) = await claim(store, worker="second")
        assert [each.outcome for each in await store.attempts(job.id)] == ["failed"]
        await store.settle([success(second)])
        failed, succeeded = await store.attempts(job.id)
        found = await recorded(store, job.id)
        assert succeeded == Attempt(
            job_id=job.id,
            attempt=2,
            fence=second.fence,
            outcome="succeeded",
            worker="second",
            started_at=found.started_at,
            ended_at=msgspec.convert(found.finished_at, datetime),
            error_code=None,
            error_text=None,
        )
        assert [each.lease for each in (failed, succeeded)] == [job.lease, second.lease]

    @needs(Room.COUNTERS)
    async def test_failures_by_code_stay_with_the_job_until_replaced(self, store: Store) -> None:
        job = await claim_one(store)
        assert job.failures == {}
        for change, expected in (
            ({"failures": {"A": 1}}, {"A": 1}),
            ({}, {"A": 1}),
            ({"failures": {"A": 1, 'ü "': 2}}, {"A": 1, 'ü "': 2}),
        ):
            await store.settle([msgspec.structs.replace(failure(job), **change)])
            (job,) = await claim(store)
            assert job.failures == expected
        await store.settle([msgspec.structs.replace(failure(job, State.DEAD), failures={"A": 2})])

    @needs(Room.COUNTERS)
    async def test_a_requeued_job_has_no_failures(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([msgspec.structs.replace(failure(job), failures={"A": 1})])
        (job,) = await claim(store)
        await store.settle([failure(job, State.DEAD)])
        await store.requeue(job.id, new_id())
        assert [again.failures for again in await claim(store)] == [{}]

    async def test_a_retry_waits_for_its_delay(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store)
        assert await store.settle([failure(job, delay_seconds=45.5)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.fence, found.attempts) == (State.QUEUED, job.fence + 1, 1)
        assert (found.error_code, found.error_text) == ("BROKEN", "it broke")
        assert (found.lease_owner, found.finished_at) == (None, None)
        await harness.advance(40)
        assert await claim(store) == []
        await harness.advance(6)
        assert [again.attempt for again in await claim(store)] == [2]

    @needs(History)
    async def test_a_retrys_delay_counts_from_its_failure(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([failure(job, delay_seconds=45.5)])
        (attempt,) = await store.attempts(job.id)
        found = await recorded(store, job.id)
        assert found.run_at == attempt.ended_at + timedelta(seconds=45.5)

    @needs(History)
    async def test_failed_attempts_are_recorded(self, store: Store) -> None:
        job = await claim_one(store)
        started_at = (await recorded(store, job.id)).started_at
        await store.settle([failure(job)])
        (second,) = await claim(store, worker="second")
        await store.settle([failure(second, State.DEAD)])
        first_attempt, second_attempt = await store.attempts(job.id)
        assert (first_attempt.attempt, first_attempt.fence) == (1, job.fence)
        assert (first_attempt.outcome, first_attempt.worker) == ("failed", "worker")
        assert first_attempt.started_at == started_at
        assert (first_attempt.error_code, first_attempt.error_text) == ("BROKEN", "it broke")
        assert (second_attempt.attempt, second_attempt.fence) == (2, second.fence)
        assert second_attempt.worker == "second"

    @pytest.mark.parametrize("state", [State.FAILED, State.DEAD])
    async def test_a_last_failure_ends_the_job(self, store: Store, state: State) -> None:
        job = await claim_one(store)
        await store.settle([failure(job, state)])
        found = await recorded(store, job.id)
        assert (found.state, found.error_code, found.fence) == (state, "BROKEN", job.fence + 1)
        assert (found.lease_owner, found.lease_expires_at) == (None, None)

    @needs(History, Room.TIMES)
    @pytest.mark.parametrize("state", [State.FAILED, State.DEAD])
    async def test_a_last_failure_keeps_its_time(self, store: Store, state: State) -> None:
        job = await claim_one(store)
        await store.settle([failure(job, state)])
        assert (await recorded(store, job.id)).finished_at is not None
        assert [attempt.outcome for attempt in await store.attempts(job.id)] == ["failed"]

    async def test_a_success_clears_an_earlier_error(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([failure(job)])
        (again,) = await claim(store)
        await store.settle([success(again)])
        found = await recorded(store, job.id)
        assert (found.error_code, found.error_text) == (None, None)

    @needs(History, Room.COUNTERS, Room.TIMES)
    async def test_a_snooze_refunds_the_attempt_and_keeps_the_error(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([failure(job)])
        (again,) = await claim(store)
        before = await recorded(store, job.id)
        assert before.started_at is not None
        await store.settle([snooze(again, 600)])
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.snoozes) == (State.QUEUED, 1, 1)
        assert (found.releases, found.fence) == (0, again.fence + 1)
        assert (found.error_code, found.error_text) == ("BROKEN", "it broke")
        assert found.run_at - before.started_at >= timedelta(seconds=600)
        assert len(await store.attempts(job.id)) == 1

    @needs(History, Room.COUNTERS)
    async def test_a_release_refunds_the_attempt_and_is_due_at_once(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.settle([release(job)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)
        assert (found.snoozes, found.fence) == (0, job.fence + 1)
        (again,) = await claim(store)
        assert (again.attempt, again.releases) == (1, 1)
        assert await store.attempts(job.id) == []

    @needs(History, Room.COUNTERS, Room.TIMES)
    async def test_a_job_that_did_not_start_is_released_without_a_trace(self, store: Store) -> None:
        job = await claim_one(store)
        before = await recorded(store, job.id)
        unstarted = settlement(job, State.QUEUED, delay_seconds=-600, attempt_back=True)
        assert await store.settle([unstarted]) == []
        found = await recorded(store, job.id)
        assert before.started_at is not None
        due_since = before.started_at - found.run_at
        assert timedelta(seconds=590) < due_since <= timedelta(seconds=600)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 0)
        assert found.fence == job.fence + 1
        assert await store.attempts(job.id) == []
        assert await store.settle([success(job)]) != []
        (again,) = await claim(store)
        assert (again.id, again.attempt) == (job.id, 1)

    @needs(History, Room.COUNTERS, Room.TIMES)
    async def test_a_hand_back_is_a_release_with_a_delay_and_a_reason(self, store: Store) -> None:
        job = await claim_one(store)
        before = await recorded(store, job.id)
        assert before.started_at is not None
        handed_back = settlement(
            job,
            State.QUEUED,
            delay_seconds=600,
            error_code="HANDED_BACK",
            error_text="no argument 'subject'",
            attempt_back=True,
            released=True,
            outcome="released",
        )
        assert await store.settle([handed_back]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)
        assert found.run_at - before.started_at >= timedelta(seconds=600)
        assert (found.error_code, found.error_text) == ("HANDED_BACK", "no argument 'subject'")
        (attempt,) = await store.attempts(job.id)
        assert (attempt.outcome, attempt.worker) == ("released", "worker")
        assert (attempt.error_code, attempt.error_text) == ("HANDED_BACK", found.error_text)

    @needs(History, Room.COUNTERS)
    async def test_a_release_can_cost_an_attempt(self, store: Store) -> None:
        job = await claim_one(store)
        kept = settlement(
            job, State.QUEUED, error_code="RELEASED_TOO_OFTEN", error_text="", outcome="released"
        )
        await store.settle([kept])
        found = await recorded(store, job.id)
        assert (found.attempts, found.releases, found.error_text) == (1, 0, "")
        (attempt,) = await store.attempts(job.id)
        assert (attempt.outcome, attempt.error_code) == ("released", "RELEASED_TOO_OFTEN")

    async def test_an_expired_job_is_canceled_without_an_attempt(self, store: Store) -> None:
        job = await claim_one(store)
        expiry = settlement(job, State.CANCELED, error_code="EXPIRED", attempt_back=True)
        assert await store.settle([expiry]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.error_code, found.attempts) == (State.CANCELED, "EXPIRED", 0)
        assert found.lease_owner is None

    async def test_the_second_settlement_of_a_lease_is_lost(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.settle([success(job)]) == []
        before = await recorded(store, job.id)
        lost = [Lost(job.id, job.fence, State.SUCCEEDED)]
        assert await store.settle([success(job)]) == lost
        assert await store.settle([failure(job)]) == lost
        assert await recorded(store, job.id) == before
        assert [each.outcome for each in await kept_attempts(store, job.id)] in ([], ["succeeded"])

    @pytest.mark.parametrize("settle", [success, failure, release])
    async def test_a_job_repeated_in_a_batch_is_settled_once(
        self, store: Store, settle: Callable[[Claimed], Settlement]
    ) -> None:
        job, beside = await claim_one(store), await claim_one(store)
        batch = [settle(job), success(beside), settle(job)]
        lost = await store.settle(batch)
        assert [(one.job_id, one.fence) for one in lost] == [job.lease]
        assert (await recorded(store, job.id)).fence == job.fence + 1
        assert (await recorded(store, beside.id)).state is State.SUCCEEDED

    async def test_lost_settlements_do_not_affect_the_rest_of_a_batch(self, store: Store) -> None:
        jobs = [await claim_one(store) for _ in range(6)]
        await store.cancel([jobs[1].id, jobs[4].id])
        missing = Settlement(job_id=new_id(), fence=1, state=State.SUCCEEDED, result=b"1")
        batch = [success(job) for job in jobs[:3]] + [failure(job) for job in jobs[3:]]
        lost = await store.settle([missing, *batch])
        canceled_ones = [Lost(job.id, job.fence, State.CANCELED) for job in (jobs[1], jobs[4])]
        assert sorted(lost) == sorted([Lost(missing.job_id, 1, None), *canceled_ones])
        states = [(await recorded(store, job.id)).state for job in jobs]
        succeeded, canceled, queued = State.SUCCEEDED, State.CANCELED, State.QUEUED
        assert states == [succeeded, canceled, succeeded, queued, canceled, queued]
        outcomes = [attempt.outcome for attempt in await kept_attempts(store, jobs[4].id)]
        assert outcomes in (["canceled"], [])

    async def test_one_batch_takes_all_kinds_of_settlements(self, store: Store) -> None:
        jobs = [await claim_one(store) for _ in range(6)]
        ends = [
            success(jobs[0]),
            failure(jobs[1], delay_seconds=9),
            failure(jobs[2], State.FAILED),
            failure(jobs[3], State.DEAD),
            snooze(jobs[4], 9),
            release(jobs[5]),
        ]
        assert await store.settle(ends) == []
        states = [(await recorded(store, job.id)).state for job in jobs]
        assert states == [end.state for end in ends]

    async def test_settling_nothing_is_fine(self, store: Store) -> None:
        assert await store.settle([]) == []

    async def test_a_full_batch_is_settled(self, store: Store) -> None:
        ids = await enqueue_many(store, 1000)
        jobs = await claim(store, 1000)
        assert len(jobs) == len(ids)
        assert await store.settle([success(job) for job in reversed(jobs)]) == []
        assert await store.counts() == [Count(self.kind.queue, State.SUCCEEDED, len(ids))]

    @pytest.mark.parametrize(
        "bad",
        [
            {"error_text": "a\0b", "error_code": "X", "outcome": "failed"},
            {"error_text": "\ud800", "error_code": "X", "outcome": "failed"},
            {"error_code": "\0", "outcome": "failed"},
            {"result": b"{"},
            {"result": b'"\xff"'},
        ],
        ids=["NUL", "lone surrogate", "NUL in the code", "not JSON", "not UTF-8"],
    )
    @needs(Room.ANY_JSON, Room.WHOLE_BATCHES)
    async def test_a_bad_settlement_is_rejected_with_its_batch(
        self, store: Store, bad: dict[str, object]
    ) -> None:
        good, other = await claim_one(store), await claim_one(store)
        state = State.SUCCEEDED if "result" in bad else State.FAILED
        with pytest.raises(StoreRefused):
            await store.settle([success(good), settlement(other, state, **bad)])
        assert (await recorded(store, good.id)).state is State.RUNNING
        with pytest.raises(StoreRefused):
            await store.settle([settlement(other, state, **bad)])
        assert await store.settle([success(good)]) == []
        assert await store.settle([failure(other)]) == []

    @needs(Room.OPTIONS)
    async def test_a_job_without_attempts_left_can_not_be_retried(self, store: Store) -> None:
        job = await claim_one(store, max_attempts=1)
        with pytest.raises(StoreRefused):
            await store.settle([failure(job, State.QUEUED)])
        assert await store.settle([failure(job, State.DEAD)]) == []

    @pytest.mark.parametrize("state", sorted(ENDED))
    async def test_an_ended_job_never_changes(self, store: Store, state: State) -> None:
        job_id = await job_in(store, state)
        before, attempts = await recorded(store, job_id), await kept_attempts(store, job_id)
        for fence in range(before.fence + 2):
            await _try_everything(store, job_id, fence)
        await store.reclaim(10)
        assert await recorded(store, job_id) == before
        assert await kept_attempts(store, job_id) == attempts


async def _try_everything(store: Store, job_id: UUID, fence: int) -> None:
    for state in State:
        if state is not State.RUNNING:
            end = Settlement(job_id=job_id, fence=fence, state=state, result=b"1", error_code="X")
            assert len(await store.settle([end])) == 1
    assert len(await store.renew([Lease(job_id, fence)], 30.0)) == 1
    assert await store.cancel([job_id]) == []
    assert not await store.retry(job_id)
    assert await store.claim_by_id(job_id, "worker", 30.0) is None
