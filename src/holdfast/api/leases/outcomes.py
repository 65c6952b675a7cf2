"""Record the outcomes that workers report, by the same rules as for Python handlers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from logging import INFO

import msgspec

from holdfast.api.exact_json import pointer_to
from holdfast.api.leases.messages import (
    FailedOutcome,
    LeaseOutcome,
    RecordedOutcome,
    ReleasedOutcome,
    SnoozedOutcome,
    SucceededOutcome,
)
from holdfast.api.problems import At, Problem
from holdfast.app import Holdfast
from holdfast.domain.encrypted_jobs import ENCRYPTED
from holdfast.domain.errors import (
    JobError,
    LeaseLost,
    Permanent,
    StoreUnavailable,
    Transient,
    UnstorableValue,
)
from holdfast.domain.job import Attempt, Claimed, Job, Lease, Settlement
from holdfast.domain.models import Misfit
from holdfast.domain.outcomes import (
    Counted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Verdict,
    decide,
    decide_parked,
    found_at_work,
)
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.job_function import Definition
from holdfast.observability import logs
from holdfast.stores.protocol import Breakers, History, RemoteLeases, Store, capability, require
from holdfast.worker.classify import describer, failed, is_permanent
from holdfast.worker.events import log_settled
from holdfast.worker.openings import Openings
from holdfast.worker.report import verb
from holdfast.worker.successes import Successes

_UNTOLD = (None, "SNOOZED_TOO_OFTEN", "RELEASED_TOO_OFTEN")


class Outcomes:
    """Records each outcome once. Repeating it returns the same response. A different outcome, or
    one that arrives after the lease was lost, raises LeaseLost."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._successes = Successes(hf._seam)
        self._openings = Openings()

    async def record(self, lease: Lease, told: LeaseOutcome) -> RecordedOutcome:
        store = await self._hf._store()
        leases = require(store, RemoteLeases, "lease jobs over HTTP")
        job = await leases.leased(lease)
        if job is None:
            return await self._recorded(store, lease, told)
        definition = self._hf._definitions.get(job.name)
        is_encrypted = job.arguments.startswith(ENCRYPTED) or _encrypts(definition)
        outcome = self._outcome(definition, told, job if is_encrypted else None)
        verdict = self._judge(definition, job, outcome)
        settlement = await self._counted(store, verdict)
        if await store.settle([settlement]):
            return await self._recorded(store, lease, told)
        await self._learn(store, job, outcome)
        record = await store.get(job.id)
        self._tell(job, settlement, record)
        return _answer(lease, job.attempt, record)

    def _outcome(
        self, definition: Definition | None, told: LeaseOutcome, encrypted: Claimed | None
    ) -> Outcome:
        """`encrypted` is the job, if it is encrypted in the database."""
        describe = describer(encrypted is not None)
        match told:
            case SucceededOutcome(result):
                _check_result(definition, result)
                return Succeeded(self._encode(result, encrypted))
            case ReleasedOutcome():
                return Released()
            case SnoozedOutcome(seconds, text):
                return Snoozed(seconds, describe(JobError(text or "snoozed")))
            case FailedOutcome():
                if definition is None:
                    text = "this server does not define the job; try again on a server that does"
                    raise Problem("unknown-name", text)
                error = _error(told)
                permanent = is_permanent(definition, error)
                return failed(definition, error, describe, permanent, told.retry_after_seconds)

    def _encode(self, result: object, encrypted: Claimed | None = None) -> bytes:
        results = self._hf.settings.results
        if encrypted is not None:
            encrypt = self._hf._desk.cipher.encryptor(encrypted.tenant, encrypted.name)
            results = replace(results, encrypt=encrypt)
        try:
            return results.encode(result)
        except UnstorableValue as error:
            raise Problem("too-large", str(error)) from None

    def _judge(self, definition: Definition | None, job: Claimed, outcome: Outcome) -> Verdict:
        retry = Retry.none() if definition is None else definition.retry
        chance = self._hf._seam.random.random()
        settlement = decide(job, outcome, retry, chance)
        if settlement.state is State.QUEUED and settlement.outcome is None:
            # A row that identifies a repeated outcome.
            settlement = msgspec.structs.replace(settlement, outcome="released")
        breaker = None if definition is None else definition.breaker
        is_strike = isinstance(outcome, Failed) and outcome.dependency_failed
        if breaker is None or job.breaker is None or not is_strike:
            return Verdict(outcome, settlement)
        assert isinstance(outcome, Failed)
        strike = breaker.strike(job.breaker, outcome.code, outcome.text)
        parked = decide_parked(job, outcome, retry, chance, breaker)
        return Verdict(outcome, settlement, Counted(strike, parked))

    async def _counted(self, store: Store, verdict: Verdict) -> Settlement:
        """The settlement, once the failure is counted against its breaker."""
        breakers = capability(store, Breakers)
        if verdict.counted is None or breakers is None:
            return verdict.settlement
        now = self._hf._seam.monotonic()
        strike = self._successes.dated(verdict.counted.strike, now)
        (found_open,) = await breakers.strike([strike])
        if not found_open:
            self._openings.struck([strike.key])
        with suppress(StoreUnavailable):  # the next failure looks again
            await self._openings.look(breakers)
        return verdict.after_strike(found_open).settlement

    async def _learn(self, store: Store, job: Claimed, outcome: Outcome) -> None:
        """Note what the outcome says about the job's breaker. A successful probe closes it."""
        if job.breaker is None:
            return
        if isinstance(outcome, Succeeded):
            self._successes.note(job.breaker, self._hf._seam.monotonic())
        breakers = capability(store, Breakers)
        if breakers is None or not job.probe or not found_at_work(outcome):
            return
        if await breakers.close_breaker(job.breaker, by_hand=False):
            text = "a probe succeeded; the parked jobs follow"
            logs.event(INFO, "breaker_closed", text, breaker=job.breaker)

    def _tell(self, job: Claimed, settlement: Settlement, record: Job | None) -> None:
        outcome = verb(settlement)
        metrics = self._hf._metrics
        took_seconds = None
        if record is not None and record.started_at is not None:
            ended_at = record.finished_at or self._hf._seam.now()
            took_seconds = max(0.0, (ended_at - record.started_at).total_seconds())
            if metrics.counting:
                metrics.settled(job, settlement, outcome, took_seconds * 1000, 0.0)
        metrics.throughput.settled(job.queue, outcome, took_seconds)
        log_settled(job, settlement, outcome)

    async def _recorded(self, store: Store, lease: Lease, told: LeaseOutcome) -> RecordedOutcome:
        """Return the response to an outcome that was recorded before."""
        history = capability(store, History)
        attempts = [] if history is None else await history.attempts(lease.job_id)
        attempt = next((each for each in attempts if each.fence == lease.fence), None)
        job = await store.get(lease.job_id)
        if attempt is None or job is None or not self._is_same(told, attempt, job):
            raise LeaseLost(lease.job_id, lease.fence)
        return _answer(lease, attempt.attempt, job)

    def _is_same(self, told: LeaseOutcome, attempt: Attempt, job: Job) -> bool:
        job = self._hf._desk.cipher.shown(job)
        match told:
            case SucceededOutcome(result):
                is_success = attempt.outcome == "succeeded"
                return is_success and self._encode(result) == self._encode(job.result)
            case FailedOutcome(code):
                is_encrypted = job.encrypted or _encrypts(self._hf._definitions.get(job.name))
                text = describer(is_encrypted)(_error(told))
                is_failure = attempt.outcome in ("failed", "released")
                return is_failure and (attempt.error_code, attempt.error_text) == (code, text)
            case SnoozedOutcome() | ReleasedOutcome():
                return attempt.outcome in ("failed", "released") and attempt.error_code in _UNTOLD


def _encrypts(definition: Definition | None) -> bool:
    return definition is not None and definition.encrypted


def _check_result(definition: Definition | None, result: object) -> None:
    if definition is None:
        return
    try:
        definition.signature.check_result(result)
    except Misfit as misfit:
        text = f"{definition.name}: the result{misfit.place}: {misfit.problem}"
        pointer = pointer_to("result", *misfit.path)
        raise Problem("bad-result", text, [At(text, pointer=pointer)]) from None


def _error(told: FailedOutcome) -> JobError:
    """The error that a Python handler would have raised."""
    text = told.text or told.code
    if told.permanent:
        return Permanent(text, code=told.code)
    if told.permanent is False or told.retry_after_seconds is not None:
        return Transient(text, code=told.code)
    return JobError(text, code=told.code)


def _answer(lease: Lease, attempt: int, job: Job | None) -> RecordedOutcome:
    """The state that the outcome led to. If the job has moved on since, that was queued."""
    if job is None:
        raise LeaseLost(*lease)
    moved_on = job.fence != lease.fence + 1
    state = State.QUEUED if moved_on else job.state
    run_at = job.run_at if state is State.QUEUED else None
    return RecordedOutcome(job_id=lease.job_id, state=state, attempt=attempt, run_at=run_at)
