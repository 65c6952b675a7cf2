"""Any series of verbs, on SQLite and on a model of a page: both come to the same jobs."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from holdfast.domain.breakers import Strike
from holdfast.domain.job import Claimed, Filter, Lease, Reclaimed, Settlement
from holdfast.domain.limits import BREAKER_DOUBT_FACTOR, CRASHES_IN_COMPANY_MAX
from holdfast.domain.retention import Retention, parse_rules
from holdfast.domain.states import State
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance.breakers import PROBE_SECONDS, WINDOW_SECONDS
from holdfast.testing.conformance.crashes import crash
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    claim,
    claim_suspect,
    failure,
    new_job,
    release,
    snooze,
    success,
)
from holdfast.testing.conformance.probes import probe

T = TypeVar("T")
# Mostly due at once: what crashes and what ends takes many claims.
seconds = st.sampled_from([0, 0, 0, 7, 40])
expiries = st.sampled_from([None, None, None, 20])
breakers = st.sampled_from([None, "gateway"])
workers = st.sampled_from(["a", "b"])
RETENTION = Retention(100, parse_rules("*:dead=40s"))


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
    crashes: int = 0
    suspect: bool = False
    alone: bool = False
    worker: str | None = None
    lease_expires_at: datetime | None = None
    kept_until: datetime | None = None
    breaker: str | None = None
    held: bool = False

    def move(self, state: State, now: datetime) -> None:
        self.state = state
        self.held = False
        self.fence += 1
        self.lease_expires_at = self.worker = None
        if state.ended:
            kept_seconds = RETENTION.kept_seconds_of("default", state)
            self.kept_until = now + timedelta(seconds=kept_seconds)

    def lease(self, now: datetime, worker: str, alone: bool) -> None:
        self.move(State.RUNNING, now)
        self.attempt += 1
        self.alone = alone
        self.worker = worker
        self.lease_expires_at = now + timedelta(seconds=LEASE_SECONDS)

    def crash(self, now: datetime) -> None:
        self.crashes += 1
        last = self.attempt >= self.max_attempts
        if last and self.alone:
            self.move(State.DEAD, now)
            return
        self.suspect |= (
            self.crashes >= CRASHES_IN_COMPANY_MAX or self.attempt + 1 >= self.max_attempts
        )
        self.attempt -= last
        self.run_at = now
        self.move(State.QUEUED, now)

    def holds(self, lease: Lease) -> bool:
        return self.state is State.RUNNING and self.fence == lease.fence


@dataclass
class ModelBreaker:
    is_open: bool = False
    letting_go: bool = False
    next_probe_at: datetime | None = None
    probes: int = 0
    failures: list[datetime] = field(default_factory=list)
    worked_at: datetime | None = None

    def open(self, next_probe_at: datetime | None) -> None:
        self.is_open, self.letting_go, self.next_probe_at = True, False, next_probe_at

    def strike(self, now: datetime, worked_at: datetime | None) -> None:
        """Count a failure against a breaker that one of them opens."""
        if self.is_open:
            return
        if worked_at is not None:
            self.worked_at = max(worked_at, self.worked_at or worked_at)
        window = timedelta(seconds=WINDOW_SECONDS)
        self.failures = [each for each in (*self.failures, now) if each > now - window]
        in_a_row = [each for each in self.failures if not self.worked_at or each > self.worked_at]
        doubted = len(in_a_row) < len(self.failures)
        if len(in_a_row) >= (BREAKER_DOUBT_FACTOR if doubted else 1):
            self.open(now + timedelta(seconds=PROBE_SECONDS))
        self.failures = self.failures[-BREAKER_DOUBT_FACTOR:]


def _end(job: Claimed, kind: str, delay: int) -> Settlement:
    match kind:
        case "success":
            return success(job)
        case "failure" | "crash":
            last = job.attempt >= job.max_attempts
            state = State.DEAD if last else State.QUEUED
            return crash(job, state) if kind == "crash" else failure(job, state, delay)
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
        self.path = str(Path(self.folder.name) / "jobs.db")
        self.store = SqliteStore(self.path, self.time, synchronous="NORMAL", retention=RETENTION)
        self.do(self.store.open())
        self.model: dict[UUID, ModelJob] = {}
        self.breaker = ModelBreaker()
        self.paused = False
        self.running_max: int | None = None

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def after(self, delay: float) -> datetime:
        return self.time.now() + timedelta(seconds=delay)

    @initialize(target=ids)
    def begin(self) -> Any:
        return multiple(*(self.enqueue(0, attempts, 0, None, None) for attempts in (1, 2, 5)))

    @rule(
        target=ids,
        priority=st.integers(0, 2),
        max_attempts=st.integers(1, 5),
        delay=seconds,
        expires_in=expiries,
        breaker=breakers,
    )
    def enqueue(
        self,
        priority: int,
        max_attempts: int,
        delay: int,
        expires_in: int | None,
        breaker: str | None,
    ) -> UUID:
        job = new_job(
            priority=priority,
            max_attempts=max_attempts,
            delay_seconds=delay,
            expires_in_seconds=expires_in,
            breaker=breaker,
        )
        self.do(self.store.enqueue([job]))
        expires_at = None if expires_in is None else self.after(expires_in)
        self.model[job.id] = ModelJob(
            priority, max_attempts, self.after(delay), expires_at, breaker=breaker
        )
        return job.id

    def due(self, *, suspect: bool) -> list[UUID]:
        """Those that may start, in order; a breaker keeps no suspect from it."""
        now = self.time.now()
        found = sorted(
            (job.priority, job.run_at, job_id)
            for job_id, job in self.model.items()
            if job.state is State.QUEUED and job.run_at <= now and job.suspect == suspect
            if suspect or not (job.held or (job.breaker and self.breaker.is_open))
        )
        return [job_id for _, _, job_id in found]

    @property
    def room(self) -> int:
        running = sum(job.state is State.RUNNING for job in self.model.values())
        if self.paused:
            return 0
        return 1000 if self.running_max is None else max(self.running_max - running, 0)

    def leased(self, claimed: Claimed, worker: str, alone: bool) -> None:
        job, now = self.model[claimed.id], self.time.now()
        job.lease(now, worker, alone)
        assert (claimed.fence, claimed.attempt) == (job.fence, job.attempt)
        assert claimed.expired == (job.expires_at is not None and job.expires_at <= now)

    @rule(target=claims, limit=st.integers(1, 4), worker=workers, alone=st.booleans())
    def claim(self, limit: int, worker: str, alone: bool) -> Any:
        expected = self.due(suspect=False)[: min(limit, self.room)]
        claimed = self.do(claim(self.store, limit, worker=worker, alone=alone))
        assert [job.id for job in claimed] == expected
        for each in claimed:
            self.leased(each, worker, alone)
        return multiple(*claimed)

    @rule(target=claims, worker=workers)
    def claim_suspect(self, worker: str) -> Any:
        expected = self.due(suspect=True) if self.room else []
        assert self.do(self.store.suspects(["job"], None)) == len(expected)
        claimed = self.do(claim_suspect(self.store, worker=worker))
        assert (claimed and [claimed.id]) == (expected[:1] or None)
        if claimed is None:
            return multiple()
        self.leased(claimed, worker, alone=True)
        return claimed

    @rule(
        held=claims,
        kind=st.sampled_from(["success", "failure", "crash", "snooze", "release"]),
        delay=seconds,
    )
    def settle(self, held: Claimed, kind: str, delay: int) -> None:
        job = self.model.get(held.id)
        end = _end(held, kind, delay)
        lost = self.do(self.store.settle([end]))
        assert (lost == []) == (job is not None and job.holds(held.lease))
        if job is not None and not lost:
            job.move(end.state, self.time.now())
            job.attempt -= end.attempt_back
            job.snoozes += end.snoozed
            job.releases += end.released
            job.crashes += end.crashed
            if end.state is State.QUEUED:
                job.run_at = self.after(end.delay_seconds)

    @rule(held=claims)
    def renew(self, held: Claimed) -> None:
        job = self.model.get(held.id)
        lost = self.do(self.store.renew([held.lease], LEASE_SECONDS))
        assert (lost == []) == (job is not None and job.holds(held.lease))
        if job is not None and not lost:
            job.lease_expires_at = self.after(LEASE_SECONDS)

    @rule(job_id=ids)
    def cancel(self, job_id: UUID) -> None:
        job = self.model.get(job_id)
        canceled = self.do(self.store.cancel([job_id]))
        if job is None or job.state.ended:
            assert canceled == []
        else:
            assert [one.was_running for one in canceled] == [job.state is State.RUNNING]
            job.move(State.CANCELED, self.time.now())

    @rule(job_id=ids)
    def retry(self, job_id: UUID) -> None:
        job = self.model.get(job_id)
        retried = self.do(self.store.retry(job_id))
        assert retried == (job is not None and job.state is State.QUEUED)
        if job is not None and retried:
            job.run_at = self.time.now()
            job.held = False

    @rule(paused=st.sampled_from([False, False, False, True]))
    def pause(self, paused: bool) -> None:
        change = self.store.pause("default", None, None) if paused else self.store.resume("default")
        assert self.do(change) == (paused != self.paused)
        self.paused = paused

    @rule(running_max=st.sampled_from([None, None, None, 0, 2]))
    def cap(self, running_max: int | None) -> None:
        self.do(self.store.cap("default", running_max))
        self.running_max = running_max

    @rule()
    def open_breaker(self) -> None:
        self.do(self.store.open_breaker("gateway", None, None))
        self.breaker.open(None)

    @rule(worked_seconds_ago=st.sampled_from([None, None, 0, 5, 100]), times=st.integers(1, 5))
    def strike(self, worked_seconds_ago: float | None, times: int) -> None:
        strike = Strike("gateway", 1, WINDOW_SECONDS, PROBE_SECONDS, "no answer")
        strike = strike._replace(worked_seconds_ago=worked_seconds_ago)
        worked_at = None if worked_seconds_ago is None else self.after(-worked_seconds_ago)
        for _ in range(times):
            assert self.do(self.store.strike([strike])) == [self.breaker.is_open]
            self.breaker.strike(self.time.now(), worked_at)

    @rule(by_hand=st.booleans())
    def close_breaker(self, by_hand: bool) -> None:
        closes = self.breaker.is_open and (by_hand or self.breaker.next_probe_at is not None)
        assert self.do(self.store.close_breaker("gateway", by_hand=by_hand)) == closes
        if closes:
            self.breaker.is_open, self.breaker.letting_go = False, True
            self.breaker.probes = 0
            self.breaker.failures = [] if by_hand else self.breaker.failures
            self.breaker.worked_at = None if by_hand else self.time.now()

    @rule()
    def hold(self) -> None:
        now, moved = self.time.now(), 0
        for job in self.model.values():
            waits = job.state is State.QUEUED and job.breaker is not None and not job.suspect
            if self.breaker.is_open and waits and job.run_at <= now and not job.held:
                job.held, moved = True, moved + 1
            elif self.breaker.letting_go and job.held:
                job.held, moved = False, moved + 1
        self.breaker.letting_go = False
        holding = self.do(self.store.park(1000))
        assert holding.moved == moved
        next_probe_at = self.breaker.next_probe_at if self.breaker.is_open else None
        assert holding.probe_in_seconds == (
            None if next_probe_at is None else (next_probe_at - now).total_seconds()
        )

    @rule(target=claims, worker=workers)
    def claim_probes(self, worker: str) -> Any:
        breaker, now = self.breaker, self.time.now()
        held = [job_id for job_id, job in self.model.items() if job.held]
        least = min((self.model[job_id].fence for job_id in held), default=0)
        fresh = [job_id for job_id in held if self.model[job_id].fence == least]
        fresh.sort(key=lambda job_id: (job_id.int % 2**32, job_id))
        fresh = [max(fresh)] if fresh and breaker.probes % 2 == 0 else fresh
        is_due = breaker.is_open and breaker.next_probe_at and breaker.next_probe_at <= now
        expected = fresh[:1] if is_due and self.room else []
        claimed = self.do(probe(self.store, worker=worker))
        assert [job.id for job in claimed] == expected
        for each in claimed:
            assert each.probe
            self.leased(each, worker, alone=False)
            breaker.next_probe_at = self.after(PROBE_SECONDS)
            breaker.probes += 1
        return multiple(*claimed)

    @rule(target=ids, job_id=ids)
    def requeue(self, job_id: UUID) -> Any:
        job, new = self.model.get(job_id), new_job()
        requeued = self.do(self.store.requeue(job_id, new.id))
        assert requeued == (job is not None and job.state.ended)
        if job is None or not requeued:
            return multiple()
        self.model[new.id] = ModelJob(
            job.priority, job.max_attempts, self.time.now(), None, breaker=job.breaker
        )
        return new.id

    def compare(self, reclaimed: Sequence[Reclaimed], expected: dict[UUID, ModelJob]) -> None:
        assert {one.job_id: (one.state, one.suspect, one.fence) for one in reclaimed} == {
            job_id: (job.state, job.suspect and not job.state.ended, job.fence)
            for job_id, job in expected.items()
        }

    @rule(waited=st.booleans())
    def reclaim(self, waited: bool) -> None:
        self.time.advance(LEASE_SECONDS + 1 if waited else 0)
        now = self.time.now()
        expected = {}
        for job_id, job in self.model.items():
            if job.lease_expires_at is not None and job.lease_expires_at < now:
                job.crash(now)
                expected[job_id] = job
            elif job.state is State.QUEUED and job.expires_at and job.expires_at <= now:
                job.suspect = False
                job.move(State.CANCELED, now)
                expected[job_id] = job
        self.compare(self.do(self.store.reclaim(100)), expected)

    @rule(worker=workers, alone=st.booleans(), suspect=st.booleans())
    def die(self, worker: str, alone: bool, suspect: bool) -> None:
        """A worker dies right after a claim, which series of single steps seldom come to."""
        if suspect:
            self.claim_suspect(worker)
        else:
            self.claim(4, worker, alone)
        held = {job_id: job for job_id, job in self.model.items() if job.worker == worker}
        for job in held.values():
            job.crash(self.time.now())
        self.compare(self.do(self.store.reclaim(100, worker, "died")), held)

    @rule()
    def tidy(self) -> None:
        now = self.time.now()
        for job_id, job in list(self.model.items()):
            if job.kept_until is not None and job.kept_until <= now:
                del self.model[job_id]
        assert self.do(self.store.tidy(1000)) < 1000

    @rule(seconds=st.sampled_from([1, 10, LEASE_SECONDS + 1, 45]))
    def wait(self, seconds: float) -> None:
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
                job.crashes,
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
                job.crashes,
                job.run_at,
                job.lease_expires_at,
            )
            for job_id, job in self.model.items()
        }

    @invariant()
    def the_live_and_the_ended_have_tables_of_their_own(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            live = {UUID(row[0]) for row in connection.execute("SELECT id FROM jobs")}
            ended = {UUID(row[0]) for row in connection.execute("SELECT id FROM history")}
        assert live == {job_id for job_id, job in self.model.items() if not job.state.ended}
        assert ended == {job_id for job_id, job in self.model.items() if job.state.ended}

    @invariant()
    def both_hold_the_same_jobs_back(self) -> None:
        seen = self.do(self.store.queues())
        assert sum(queue.parked for queue in seen) == sum(job.held for job in self.model.values())

    @invariant()
    def both_count_the_same(self) -> None:
        counts = self.do(self.store.counts())
        states = Counter(job.state for job in self.model.values())
        assert {count.state: count.jobs for count in counts} == dict(states)


TestStoreAndModel = StoreAndModel.TestCase
TestStoreAndModel.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
