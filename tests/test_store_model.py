"""Any series of verbs, on SQLite and on a model of a page: both come to the same jobs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from holdfast.domain.job import Claimed, Filter, Lease, Settlement
from holdfast.domain.states import State
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    claim,
    failure,
    new_job,
    release,
    snooze,
    success,
)

T = TypeVar("T")
seconds = st.integers(0, 60)


@dataclass
class ModelJob:
    priority: int
    max_attempts: int
    run_at: datetime
    expires_at: datetime | None
    state: State = State.QUEUED
    attempt: int = 0
    fence: int = 0
    snoozes: int = 0
    releases: int = 0
    lease_expires_at: datetime | None = None

    def move(self, state: State) -> None:
        self.state = state
        self.fence += 1
        self.lease_expires_at = None

    def holds(self, lease: Lease) -> bool:
        return self.state is State.RUNNING and self.fence == lease.fence


def _end(job: Claimed, kind: str, delay: int) -> Settlement:
    match kind:
        case "success":
            return success(job)
        case "failure":
            last = job.attempt >= job.max_attempts
            return failure(job, State.DEAD if last else State.QUEUED, delay)
        case "snooze":
            return snooze(job, delay)
        case _:
            return release(job)


class StoreAndModel(RuleBasedStateMachine):
    ids: Bundle[UUID] = Bundle("ids")
    claims: Bundle[Claimed] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.time = VirtualTime()
        self.runner = asyncio.Runner()
        path = str(Path(self.folder.name) / "jobs.db")
        self.store = SqliteStore(path, self.time, synchronous="NORMAL")
        self.do(self.store.open())
        self.model: dict[UUID, ModelJob] = {}

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def after(self, delay: float) -> datetime:
        return self.time.now() + timedelta(seconds=delay)

    @rule(
        target=ids,
        priority=st.integers(0, 2),
        max_attempts=st.integers(1, 3),
        delay=seconds,
        expires_in=st.none() | seconds,
    )
    def enqueue(self, priority: int, max_attempts: int, delay: int, expires_in: int | None) -> UUID:
        job = new_job(
            priority=priority,
            max_attempts=max_attempts,
            delay_seconds=delay,
            expires_in_seconds=expires_in,
        )
        self.do(self.store.enqueue([job]))
        expires_at = None if expires_in is None else self.after(expires_in)
        self.model[job.id] = ModelJob(priority, max_attempts, self.after(delay), expires_at)
        return job.id

    @rule(target=claims, limit=st.integers(1, 4))
    def claim(self, limit: int) -> Any:
        now = self.time.now()
        due = sorted(
            (job.priority, job.run_at, job_id)
            for job_id, job in self.model.items()
            if job.state is State.QUEUED and job.run_at <= now
        )[:limit]
        claimed = self.do(claim(self.store, limit))
        assert [job.id for job in claimed] == [job_id for _, _, job_id in due]
        for each in claimed:
            job = self.model[each.id]
            job.move(State.RUNNING)
            job.attempt += 1
            job.lease_expires_at = self.after(LEASE_SECONDS)
            assert (each.fence, each.attempt) == (job.fence, job.attempt)
            assert each.expired == (job.expires_at is not None and job.expires_at <= now)
        return multiple(*claimed)

    @rule(
        held=claims,
        kind=st.sampled_from(["success", "failure", "snooze", "release"]),
        delay=seconds,
    )
    def settle(self, held: Claimed, kind: str, delay: int) -> None:
        job = self.model[held.id]
        end = _end(held, kind, delay)
        lost = self.do(self.store.settle([end]))
        assert (lost == []) == job.holds(held.lease)
        if not lost:
            job.move(end.state)
            job.attempt -= end.attempt_back
            job.snoozes += end.snoozed
            job.releases += end.released
            if end.state is State.QUEUED:
                job.run_at = self.after(end.delay_seconds)

    @rule(held=claims)
    def renew(self, held: Claimed) -> None:
        job = self.model[held.id]
        lost = self.do(self.store.renew([held.lease], LEASE_SECONDS))
        assert (lost == []) == job.holds(held.lease)
        if not lost:
            job.lease_expires_at = self.after(LEASE_SECONDS)

    @rule(job_id=ids)
    def cancel(self, job_id: UUID) -> None:
        job = self.model[job_id]
        canceled = self.do(self.store.cancel([job_id]))
        assert [one.was_running for one in canceled] == (
            [] if job.state.ended else [job.state is State.RUNNING]
        )
        if canceled:
            job.move(State.CANCELED)

    @rule(job_id=ids)
    def retry(self, job_id: UUID) -> None:
        job = self.model[job_id]
        retried = self.do(self.store.retry(job_id))
        assert retried == (job.state is State.QUEUED)
        if retried:
            job.run_at = self.time.now()

    @rule(target=ids, job_id=ids)
    def requeue(self, job_id: UUID) -> Any:
        job, new = self.model[job_id], new_job()
        requeued = self.do(self.store.requeue(job_id, new.id))
        assert requeued == job.state.ended
        if not requeued:
            return multiple()
        self.model[new.id] = ModelJob(job.priority, job.max_attempts, self.time.now(), None)
        return new.id

    @rule()
    def reclaim(self) -> None:
        now = self.time.now()
        expected = {}
        for job_id, job in self.model.items():
            if job.lease_expires_at is not None and job.lease_expires_at < now:
                dead = job.attempt >= job.max_attempts
                job.run_at = job.run_at if dead else now
                job.move(State.DEAD if dead else State.QUEUED)
                expected[job_id] = job.state
            elif job.state is State.QUEUED and job.expires_at and job.expires_at <= now:
                job.move(State.CANCELED)
                expected[job_id] = job.state
        reclaimed = self.do(self.store.reclaim(100))
        assert {one.job_id: one.state for one in reclaimed} == expected

    @rule(seconds=st.integers(1, 45))
    def wait(self, seconds: int) -> None:
        self.time.advance(seconds)

    @invariant()
    def both_hold_the_same_jobs(self) -> None:
        page = self.do(self.store.page(Filter(), 1000))
        assert {
            job.id: (
                job.state,
                job.attempts,
                job.fence,
                job.snoozes,
                job.releases,
                job.run_at,
                job.lease_expires_at,
            )
            for job in page.jobs
        } == {
            job_id: (
                job.state,
                job.attempt,
                job.fence,
                job.snoozes,
                job.releases,
                job.run_at,
                job.lease_expires_at,
            )
            for job_id, job in self.model.items()
        }


TestStoreAndModel = StoreAndModel.TestCase
TestStoreAndModel.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
