"""Everything that Holdfast raises.

HoldfastError
├── ConfigurationError          a setting, name, URL or module that can't be right
│   └── SchemaMismatch          the database's schema is not one that this code runs on
├── BadArguments                the arguments can't be stored, or don't fit the handler
│   └── PayloadTooLarge
├── DuplicateJob                a job with the id that the caller chose exists already
├── IdempotencyConflict         the key was used before, with a different body
├── JobNotFound
├── WrongState                  the state of the job, queue or breaker does not allow it
│   └── AlreadyRequeued         a requeue that should happen once has happened
├── JobFailed                   `hf.result` of a job that did not succeed
├── ResultTimeout               `hf.result` gave up waiting (a TimeoutError, too)
├── LeaseLost                   a write with a fence that is no longer the job's
├── WorkerHung                  handlers don't stop, and nothing else can start beside them
├── StoreError
│   ├── StoreUnavailable        the database can't be reached now; trying again may help
│   └── StoreRefused            the database refused a value; trying again will not help
└── JobError                    raised by handlers to say what should happen next
    ├── Permanent               do not try again
    │   └── UnstorableValue     JSON can't hold the result, or the progress
    ├── Transient               try again as the retry policy says
    │   ├── RetryAfter          try again, but not before `seconds`
    │   └── JobTimeout          the handler took longer than its timeout
    └── Snooze                  not now: come back after `seconds`, without using an attempt
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.domain.job import Job


class HoldfastError(Exception):
    pass


class ConfigurationError(HoldfastError):
    pass


class SchemaMismatch(ConfigurationError):
    pass


class NotInThisStore(ConfigurationError):
    """This kind of database can't do what was asked, however it is set up."""


class BadArguments(HoldfastError):
    pass


class PayloadTooLarge(BadArguments):
    pass


class DuplicateJob(HoldfastError):
    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} already exists; nothing was enqueued")
        self.job_id = job_id


class IdempotencyConflict(HoldfastError):
    def __init__(self, key: str, job_id: UUID) -> None:
        super().__init__(
            f"idempotency key {key!r} belongs to job {job_id}, which has a different body;"
            " nothing was enqueued"
        )
        self.key = key
        self.job_id = job_id


class JobNotFound(HoldfastError):
    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} does not exist")
        self.job_id = job_id


class WrongState(HoldfastError):
    pass


class AlreadyRequeued(WrongState):
    def __init__(self, job_id: UUID, new_id: UUID) -> None:
        super().__init__(f"job {job_id} was already requeued as {new_id}; nothing was changed")
        self.job_id = job_id
        self.new_id = new_id


class JobFailed(HoldfastError):
    def __init__(self, job: Job) -> None:
        reason = f": {job.error_code}: {job.error_text}" if job.error_code else ""
        super().__init__(f"job {job.id} ({job.name}) ended as {job.state}{reason}")
        self.job = job


class ResultTimeout(HoldfastError, TimeoutError):
    pass


class LeaseLost(HoldfastError):
    def __init__(self, job_id: UUID, fence: int) -> None:
        super().__init__(
            f"job {job_id} is no longer leased with fence {fence}; nothing was written"
        )
        self.job_id = job_id
        self.fence = fence


class WorkerHung(HoldfastError):
    def __init__(self, handlers: int, *, suspects_wait: bool = False) -> None:
        trouble = (
            f"quarantined jobs can't run beside {handlers} handlers that don't stop"
            if suspects_wait
            else f"all {handlers} slots are taken by handlers that don't stop"
        )
        super().__init__(
            f"{trouble}, though their jobs are settled;"
            " the worker is exiting so that it can be restarted"
        )


class StoreError(HoldfastError):
    pass


class StoreUnavailable(StoreError):
    def __init__(self, text: str = "", *, connections_used_up: bool = False) -> None:
        super().__init__(text)
        self.connections_used_up = connections_used_up


class StoreRefused(StoreError):
    pass


class JobError(HoldfastError):
    """An error of a handler with a code that policies, logs and people can go by."""

    default_code = "ERROR"

    def __init__(self, text: str = "", *, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code or self.default_code


class Permanent(JobError):
    default_code = "PERMANENT"


class UnstorableValue(Permanent):
    codes: Final = {"result": "UNSTORABLE_RESULT", "progress": "UNSTORABLE_PROGRESS"}

    def __init__(self, noun: str, reason: str) -> None:
        super().__init__(f"the {noun} can't be stored: {reason}", code=self.codes[noun])


class Transient(JobError):
    default_code = "TRANSIENT"


class RetryAfter(Transient):
    default_code = "RETRY_AFTER"

    def __init__(self, seconds: float, text: str = "", *, code: str | None = None) -> None:
        self.seconds = _number_of(seconds)
        super().__init__(text or f"retry after {self.seconds:g} s", code=code)


class JobTimeout(Transient):
    default_code = "TIMEOUT"


class Snooze(JobError):
    default_code = "SNOOZED"

    def __init__(self, seconds: float, text: str = "", *, code: str | None = None) -> None:
        self.seconds = _number_of(seconds)
        super().__init__(text or f"snoozed for {self.seconds:g} s", code=code)


def _number_of(seconds: float) -> float:
    """A header's text, say: what is no number is an error of the handler, here and now."""
    number = float(seconds)
    if math.isnan(number):
        raise ValueError("the seconds to wait must be a number, not NaN")
    return number
