"""The orchestrator: starts the attempts of sagas, and alone decides what follows each.

It is a sweep. In each turn it takes a step of a replay, checks on attempts that were not reported
in time, judges those that were reported, cancels what waits for disabled subscriptions, and starts
attempts that are due: a bounded number in one transaction, with a few statements. Several
orchestrators share the work, because each skips what another one has locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import Holdfast, JobFunction, Statements, SweepContext, Tables
from holdfast.webhooks.delivery import CANCELED
from holdfast.webhooks.events import Died, log_dead_letter, log_disabled, log_lost
from holdfast.webhooks.limits import SAGAS_AT_ONCE_MAX
from holdfast.webhooks.policy import (
    GONE,
    Decision,
    Delivered,
    GiveUp,
    TryAgain,
    decide,
    read_policy,
)
from holdfast.webhooks.replays import WAIT_SECONDS, Replays

LEASE_LOST: Final = "LEASE_LOST"
FAILING: Final = "FAILING"
LOCKED_SECONDS: Final = 0.1  # until another orchestrator is done with what it has locked


class _Outlook(msgspec.Struct, frozen=True):
    next_attempt_at: datetime | None
    check_at: datetime | None
    reported: bool
    stopping: bool
    replaying: bool
    now: datetime

    @property
    def seconds(self) -> float | None:
        """How long there is nothing to do; None if nothing is known."""
        if self.reported or self.stopping:
            return 0.0
        times = [time for time in (self.next_attempt_at, self.check_at) if time is not None]
        return max(0.0, (min(times) - self.now).total_seconds()) if times else None


class _Unreported(msgspec.Struct, frozen=True):
    """An attempt, and the state of its job (None if the job is gone)."""

    id: UUID
    saga_id: UUID
    attempt_no: int
    policy: str
    job_state: str | None
    job_error_code: str | None

    @property
    def is_awaited(self) -> bool:
        return self.job_state in ("queued", "running")

    @property
    def error_code(self) -> str:
        code = self.job_error_code
        return LEASE_LOST if code is None or code == "CRASHED" else code


class _Reported(msgspec.Struct, frozen=True):
    """An attempt. If it is not awaited, its saga has ended in the meantime."""

    id: UUID
    saga_id: UUID
    subscription_id: UUID
    attempt_no: int
    response_status: int | None
    error_code: str | None
    retry_after_seconds: float | None
    lease_until: datetime | None
    worker_id: str | None
    is_awaited: bool
    policy: str
    disabled: bool
    failing_since: datetime | None
    failures: int
    now: datetime

    def decide(self, chance: float) -> Decision:
        return decide(
            read_policy(self.policy),
            self.attempt_no,
            self.failures,
            self.response_status,
            self.error_code,
            chance,
            self.retry_after_seconds,
        )

    @property
    def reason_to_disable(self) -> str | None:
        """Why nothing more should be sent to its subscription, if so."""
        if self.disabled or self.error_code is None:
            return None
        if self.response_status == GONE:
            return f"HTTP_{GONE}"
        since, limit = self.failing_since, read_policy(self.policy).disable_after_seconds
        if since is not None and (self.now - since).total_seconds() >= limit:
            return FAILING
        return None


class _Due(msgspec.Struct, frozen=True):
    """A saga, and the number of its next attempt."""

    id: UUID
    tenant: str
    attempt_no: int
    policy: str
    disabled: bool


class _Attempt(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    saga_id: UUID
    attempt_no: int
    guard_seconds: float


class _Id(msgspec.Struct, frozen=True):
    id: UUID


@dataclass(frozen=True, slots=True)
class _Checked:
    count: int
    lost: Sequence[_Unreported]


@dataclass(frozen=True, slots=True)
class _Judgment:
    count: int
    died: Sequence[Died]
    disabled: Mapping[UUID, str]


class Orchestrator:
    def __init__(
        self,
        hf: Holdfast,
        tables: Tables,
        replays: Replays,
        deliver: JobFunction[[UUID, int], None],
    ) -> None:
        self._hf = hf
        self._tables = tables
        self._replays = replays
        self._deliver = deliver
        self._random = Random()

    async def sweep(self, ctx: SweepContext) -> float | None:
        """Do what is due, up to a limit; return the number of seconds until there is more to do."""
        async with self._hf.transaction(read_only=True) as connection:
            outlook = await self._tables.on(connection).one("look", _Outlook)
        assert outlook is not None
        stepped = outlook.replaying and await self._replays.step()
        seconds = outlook.seconds
        if seconds != 0 and not stepped:
            waits = outlook.replaying and (seconds is None or seconds > WAIT_SECONDS)
            return WAIT_SECONDS if waits else seconds
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            checked = await self._check(statements)
            judgment = await self._judge(statements, ctx.worker_id)
            stopped = await self._stop(statements)
            started = await self._start(statements, connection)
        for lost in checked.lost:
            log_lost(lost.saga_id, lost.id, lost.attempt_no, lost.error_code)
        for died in judgment.died:
            log_dead_letter(died)
        for subscription_id, because in judgment.disabled.items():
            log_disabled(subscription_id, because)
        did = stepped or checked.count or judgment.count or stopped or started
        return 0.0 if did else LOCKED_SECONDS

    async def _check(self, statements: Statements) -> _Checked:
        """Check on attempts that were not reported. If the job has ended without a report, because
        it was canceled or all its workers died, report for it."""
        found = await statements.all("attempts_to_check", _Unreported, rows_max=SAGAS_AT_ONCE_MAX)
        lost = [each for each in found if not each.is_awaited]
        awaited = [
            {"id": each.id, "guard_seconds": read_policy(each.policy).guard_seconds}
            for each in found
            if each.is_awaited
        ]
        if lost:
            reports = [{"id": each.id, "error_code": each.error_code} for each in lost]
            await statements.execute("report_lost", attempts=_json(reports))
        if awaited:
            await statements.execute("check_again", attempts=_json(awaited))
        return _Checked(len(found), lost)

    async def _judge(self, statements: Statements, worker_id: str) -> _Judgment:
        found = await statements.all("attempts_to_judge", _Reported, rows_max=SAGAS_AT_ONCE_MAX)
        disabled = await self._note_subscriptions(statements, found)
        ended: list[dict[str, Any]] = []
        put_off: list[dict[str, Any]] = []
        died: list[Died] = []
        for attempt in found:
            if not attempt.is_awaited:
                continue
            stops = attempt.disabled or attempt.subscription_id in disabled
            match attempt.decide(self._random.random()):
                case Delivered():
                    ended.append({"id": attempt.saga_id, "status": "Delivered"})
                case TryAgain() if stops:
                    ended.append({"id": attempt.saga_id, "status": "Canceled"})
                case GiveUp() if stops and attempt.error_code == CANCELED:  # nothing was sent
                    ended.append({"id": attempt.saga_id, "status": "Canceled"})
                case TryAgain(delay_seconds):
                    put_off.append({"id": attempt.saga_id, "delay_seconds": delay_seconds})
                case GiveUp(code):
                    ended.append({"id": attempt.saga_id, "status": "DeadLettered"})
                    died.append(self._died(attempt, code, worker_id))
        if found:
            await statements.execute("note_judged", ids=_json([each.id for each in found]))
        if put_off:
            await statements.execute("put_off", sagas=_json(put_off))
        # First the letters: the database allows no dead-lettered saga without one.
        if died:
            await statements.execute("insert_dead_letters", letters=_json(_letters(died)))
        if ended:
            await statements.execute("end_sagas", sagas=_json(ended))
        return _Judgment(len(found), died, disabled)

    async def _note_subscriptions(
        self, statements: Statements, found: Sequence[_Reported]
    ) -> dict[UUID, str]:
        """Note which subscriptions fail, and which no longer do. Disable those that are gone or
        have failed for long; return them with the reason."""
        changed: dict[UUID, bool] = {}
        disabled: dict[UUID, str] = {}
        for attempt in found:
            if attempt.error_code == CANCELED:  # says nothing about the receiver
                continue
            failed = attempt.error_code is not None
            if failed != (attempt.failing_since is not None):
                changed[attempt.subscription_id] = failed
            if because := attempt.reason_to_disable:
                disabled[attempt.subscription_id] = because
        # In order, so that orchestrators don't wait for each other in a circle.
        for subscription_id, because in sorted(disabled.items()):
            await statements.value("disable", id=subscription_id, because=because)
        if changed:
            results = [{"id": id, "failed": failed} for id, failed in changed.items()]
            await statements.execute("note_results", results=_json(results))
        return disabled

    async def _stop(self, statements: Statements) -> int:
        """Cancel sagas that wait for a subscription that was disabled or deleted."""
        found = await statements.all("sagas_to_stop", _Id, rows_max=SAGAS_AT_ONCE_MAX)
        if found:
            ended = [{"id": each.id, "status": "Canceled"} for each in found]
            await statements.execute("end_sagas", sagas=_json(ended))
            return len(found)
        stopped = await statements.all("stopping_subscriptions", _Id, rows_max=SAGAS_AT_ONCE_MAX)
        for each in stopped:
            await statements.execute("note_stopped", id=each.id)
        return 0

    def _died(self, attempt: _Reported, error_code: str, worker_id: str) -> Died:
        return Died(
            dead_letter_id=self._hf.new_id(),
            saga_id=attempt.saga_id,
            job_id=attempt.id,
            attempt=attempt.attempt_no,
            error_code=error_code,
            lease_expiration=attempt.lease_until,
            worker_id=attempt.worker_id,
            decided_by=worker_id,
        )

    async def _start(self, statements: Statements, connection: Any) -> int:
        """Start the next attempts, unless their subscription has been disabled."""
        found = await statements.all("due_sagas", _Due, rows_max=SAGAS_AT_ONCE_MAX)
        ended = [{"id": saga.id, "status": "Canceled"} for saga in found if saga.disabled]
        if ended:
            await statements.execute("end_sagas", sagas=_json(ended))
        attempts = [
            _Attempt(
                id=self._hf.new_id(),
                tenant=saga.tenant,
                saga_id=saga.id,
                attempt_no=saga.attempt_no,
                guard_seconds=read_policy(saga.policy).guard_seconds,
            )
            for saga in found
            if not saga.disabled
        ]
        if attempts:
            await statements.execute("insert_attempts", attempts=_json(attempts))
            await statements.execute("put_in_flight", attempts=_json(attempts))
            calls = [
                self._deliver.options(id=each.id, tenant=each.tenant).call(
                    each.saga_id, each.attempt_no
                )
                for each in attempts
            ]
            await self._hf.enqueue_many(calls, connection=connection)
        return len(found)


def _letters(died: Sequence[Died]) -> list[dict[str, Any]]:
    return [
        {"id": each.dead_letter_id, "saga_id": each.saga_id, "error_code": each.error_code}
        for each in died
    ]


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()
