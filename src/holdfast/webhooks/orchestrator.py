"""The orchestrator: starts the attempts of a saga, and alone decides what follows each.

A `webhooks.orchestrate` job names a saga and one of its attempts: to start the attempt, to judge it
once it is reported, or to check that its job is alive. A job that comes late or twice finds that
the saga has moved on, and changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Holdfast, JobFunction, JobNotFound, Tables, WrongState
from holdfast.webhooks.events import Died
from holdfast.webhooks.policy import Delivered, GiveUp, Policy, TryAgain, decide
from holdfast.webhooks.rows import SagaStatus

LEASE_LOST = "LEASE_LOST"


class _Saga(msgspec.Struct, frozen=True):
    id: UUID
    status: SagaStatus
    attempt_count: int
    policy: str


class _Reported(msgspec.Struct, frozen=True):
    """An attempt, and the state of its job (None if the job is gone)."""

    id: UUID
    status: str
    response_status: int | None
    error_code: str | None
    job_state: str | None
    job_error_code: str | None

    @property
    def is_awaited(self) -> bool:
        return self.status == "Pending" and self.job_state in ("queued", "running")


class _Watched(msgspec.Struct, frozen=True):
    guard_id: UUID | None  # None: the attempt is older than this column


@dataclass(frozen=True, slots=True)
class Jobs:
    """The two jobs. Both take a saga's ID and the number of an attempt."""

    orchestrate: JobFunction[[UUID, int], None]
    deliver: JobFunction[[UUID, int], None]


class Orchestrator:
    def __init__(self, hf: Holdfast, tables: Tables) -> None:
        self._hf = hf
        self._tables = tables
        self._random = Random()

    async def step(
        self, connection: Any, jobs: Jobs, job_id: UUID, saga_id: UUID, attempt_no: int
    ) -> Died | None:
        """Move the saga one step forward, in the transaction that completes this job."""
        statements = self._tables.on(connection)
        saga = await statements.one("saga_to_decide", _Saga, id=saga_id)
        if saga is None:
            return None
        if saga.status == "Pending" and saga.attempt_count == attempt_no - 1:
            await self._start(connection, jobs, saga, attempt_no)
        elif saga.status == "InFlight" and saga.attempt_count == attempt_no:
            reported = await self._look(connection, jobs, saga)
            if reported is not None:
                worker_id = await statements.value("worker_of_job", id=job_id)
                return await self._judge(connection, jobs, saga, reported, worker_id)
        return None

    async def _start(self, connection: Any, jobs: Jobs, saga: _Saga, attempt_no: int) -> None:
        statements = self._tables.on(connection)
        job_id, guard_id = self._hf.new_id(), self._hf.new_id()
        await statements.execute(
            "insert_attempt",
            id=job_id,
            saga_id=saga.id,
            attempt_no=attempt_no,
            guard_id=guard_id,
        )
        await statements.execute("put_in_flight", id=saga.id, attempt_no=attempt_no)
        deliver = jobs.deliver.options(id=job_id, connection=connection)
        await deliver.enqueue(saga.id, attempt_no)
        await self._watch(connection, jobs, saga, attempt_no, guard_id)

    async def _watch(
        self, connection: Any, jobs: Jobs, saga: _Saga, attempt_no: int, guard_id: UUID
    ) -> None:
        """Check later, because a job whose workers all died reports nothing. A report makes this
        guard due."""
        delay_seconds = Policy.decode(saga.policy).guard_seconds
        guard = jobs.orchestrate.options(
            id=guard_id, delay_seconds=delay_seconds, connection=connection
        )
        await guard.enqueue(saga.id, attempt_no)

    async def follow(self, connection: Any, jobs: Jobs, saga_id: UUID, attempt_no: int) -> None:
        """Have the attempt judged that this transaction reports: its guard is due now."""
        watched = await self._tables.on(connection).one(
            "guard_of_attempt", _Watched, saga_id=saga_id, attempt_no=attempt_no
        )
        if watched is not None and watched.guard_id is not None:
            # If it is running, it may not see the report.
            with suppress(JobNotFound, WrongState):
                await self._hf.jobs.retry(watched.guard_id, connection=connection)
                return
        await jobs.orchestrate.options(connection=connection).enqueue(saga_id, attempt_no)

    async def _look(self, connection: Any, jobs: Jobs, saga: _Saga) -> _Reported | None:
        """Return how the attempt ended, or None if it has not."""
        statements = self._tables.on(connection)
        reported = await statements.one(
            "report_of_attempt", _Reported, saga_id=saga.id, attempt_no=saga.attempt_count
        )
        if reported is not None and reported.is_awaited:
            guard_id = self._hf.new_id()
            # Changes nothing if the report came just now: another job follows that.
            if await statements.execute("set_guard", id=reported.id, guard_id=guard_id):
                await self._watch(connection, jobs, saga, saga.attempt_count, guard_id)
            return None
        if reported is not None and reported.status == "Pending":
            return await self._report_lost(connection, reported)
        return reported

    async def _report_lost(self, connection: Any, reported: _Reported) -> _Reported:
        """Report the attempt for a job that ended without reporting."""
        code = reported.job_error_code
        if code is None or code == "CRASHED":
            code = LEASE_LOST
        failed = msgspec.structs.replace(reported, status="Failed", error_code=code)
        await self._tables.on(connection).execute(
            "report", id=failed.id, status="Failed", response_status=None, error_code=code
        )
        return failed

    async def _judge(
        self, connection: Any, jobs: Jobs, saga: _Saga, reported: _Reported, worker_id: str | None
    ) -> Died | None:
        statements = self._tables.on(connection)
        attempts = saga.attempt_count
        failures = await statements.value(
            "failures_with_code", saga_id=saga.id, error_code=reported.error_code
        )
        decision = decide(
            Policy.decode(saga.policy),
            attempts,
            failures,
            reported.response_status,
            reported.error_code,
            self._random.random(),
        )
        match decision:
            case Delivered():
                await statements.execute("end_delivered", id=saga.id)
            case TryAgain(delay_seconds):
                await statements.execute("put_off", id=saga.id, seconds=delay_seconds)
                again = jobs.orchestrate.options(delay_seconds=delay_seconds, connection=connection)
                await again.enqueue(saga.id, attempts + 1)
            case GiveUp(code):
                letter_id = await self._bury(connection, saga, code)
                return Died(letter_id, saga.id, reported.id, attempts, code, worker_id)
        return None

    async def _bury(self, connection: Any, saga: _Saga, error_code: str) -> UUID:
        """Write the letter first: the database allows no dead-lettered saga without one."""
        statements = self._tables.on(connection)
        letter_id = self._hf.new_id()
        await statements.execute(
            "insert_dead_letter", id=letter_id, saga_id=saga.id, final_error_code=error_code
        )
        await statements.execute("end_dead_lettered", id=saga.id)
        return letter_id
