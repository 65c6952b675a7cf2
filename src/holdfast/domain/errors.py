"""All errors that Holdfast raises.

HoldfastError
├── ConfigurationError          a setting, name, URL or module is invalid
│   ├── NotInThisStore          this store does not have the capability
│   └── SchemaMismatch          this code can't run on the database's schema
├── BadArguments                the arguments can't be stored, or don't fit the handler
│   └── PayloadTooLarge
├── DuplicateJob                a job with the id that the caller chose already exists
├── IdempotencyConflict         the key belongs to a job with a different body
├── JobNotFound
├── BulkChangeNotFound
├── ErrorGroupNotFound
├── KeyNotFound
├── WrongState                  the state of the job, queue or breaker does not allow it
│   └── AlreadyRequeued         the job was requeued before, and `again` is False
├── JobFailed                   `hf.result` waited for a job that did not succeed
├── ResultTimeout               `hf.result` gave up waiting (a TimeoutError, too)
├── UnreadableResult            the result does not fit the type that the handler returns now
├── CannotDecrypt               the value was changed or moved, or is under another key
│   └── UnknownSecretKey        this process does not have the key
├── LeaseLost                   the attempt lost its lease
├── WorkerHung                  no handler can start, because others don't stop
├── StoreError
│   ├── StoreUnavailable        the database can't be reached now; retrying may help
│   └── StoreRefused            the database rejected a value; retrying won't help
└── JobError                    raised by handlers, to say what happens next
    ├── Permanent               do not retry
    │   └── UnstorableValue     JSON can't hold the result, or the progress
    ├── Transient               retry as the policy says
    │   ├── RetryAfter          retry, but not before `seconds`
    │   └── JobTimeout          the handler ran longer than its timeout
    ├── ProcessCrashed          the process of `ctx.run_in_process` died
    ├── ProcessTimeout          its function took too long (a TimeoutError, too)
    └── Snooze                  run again after `seconds`, without using an attempt
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.domain.job import Job


class HoldfastError(Exception):
    """The base of all errors of this library."""


class ConfigurationError(HoldfastError):
    """A setting, option, name, URL or module is invalid."""


class SchemaMismatch(ConfigurationError):
    """This code can't run on the database's schema. Migrate it, or upgrade Holdfast."""


class NotInThisStore(ConfigurationError):
    """This store does not have the capability."""


class BadArguments(HoldfastError):
    """An argument can't be stored, or does not fit the handler.

    `path` leads to the bad value: the argument, then names and indexes inside it. It is empty if no
    single value is to blame.
    """

    def __init__(self, text: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(text)
        self.path = path

    def of(self, job: str) -> Self:
        """The same error, with the name of the job."""
        return type(self)(f"{job}: {self}", self.path)


class PayloadTooLarge(BadArguments):
    """The arguments exceed `payload_bytes_max`."""


class DuplicateJob(HoldfastError):
    """A job with the id that the caller chose already exists."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} already exists; nothing was enqueued")
        self.job_id = job_id


class IdempotencyConflict(HoldfastError):
    """The idempotency key belongs to a job with a different body."""

    def __init__(self, key: str, job_id: UUID) -> None:
        super().__init__(
            f"idempotency key {key!r} belongs to job {job_id}, which has a different body;"
            " nothing was enqueued"
        )
        self.key = key
        self.job_id = job_id


class JobNotFound(HoldfastError):
    """There is no job with this id."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} does not exist")
        self.job_id = job_id


class KeyNotFound(HoldfastError):
    """There is no key with this ID."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"key {key_id} does not exist")
        self.key_id = key_id


class BulkChangeNotFound(HoldfastError):
    """There is no bulk change with this ID, or it belongs to another tenant."""

    def __init__(self, change_id: UUID) -> None:
        super().__init__(f"bulk change {change_id} does not exist")
        self.change_id = change_id


class ErrorGroupNotFound(HoldfastError):
    """There is no group of errors with this fingerprint, or it belongs to another tenant."""


class WrongState(HoldfastError):
    """The state of the job, queue or breaker does not allow this."""


class AlreadyRequeued(WrongState):
    """The job was requeued before, and `again` is False."""

    def __init__(self, job_id: UUID, new_id: UUID) -> None:
        super().__init__(f"job {job_id} was already requeued as {new_id}; nothing was changed")
        self.job_id = job_id
        self.new_id = new_id


class JobFailed(HoldfastError):
    """`hf.result` waited for a job that did not succeed."""

    def __init__(self, job: Job) -> None:
        reason = f": {job.error_code}: {job.error_text}" if job.error_code else ""
        super().__init__(f"job {job.id} ({job.name}) ended as {job.state}{reason}")
        self.job = job


class ResultTimeout(HoldfastError, TimeoutError):
    """`hf.result` waited for `timeout_seconds`, and the job had not ended."""


class UnreadableResult(HoldfastError):
    """The job succeeded, but its result does not fit the type that the handler is annotated with.

    Another version of the code may have stored it. `error.job.result` has it as it is stored.
    """

    def __init__(self, job: Job, reason: str) -> None:
        super().__init__(
            f"the result of job {job.id} ({job.name}) does not fit the handler's type: {reason}"
        )
        self.job = job


class CannotDecrypt(HoldfastError):
    """The value was changed or moved, or was encrypted with another key of the same name."""


class UnknownSecretKey(CannotDecrypt):
    """This process does not have the key that the value was encrypted with."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"the secret key {key_id!r} is unknown here; add it to HOLDFAST_SECRET_KEYS"
        )
        self.key_id = key_id


class LeaseLost(HoldfastError):
    """The attempt lost its lease: another worker may be running the job."""

    def __init__(self, job_id: UUID, fence: int) -> None:
        super().__init__(
            f"job {job_id} is no longer leased with fence {fence}; nothing was written"
        )
        self.job_id = job_id
        self.fence = fence


class WorkerHung(HoldfastError):
    """No handler can start, because others don't stop. The worker exits."""

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
    """The base of the errors of a database."""


class StoreUnavailable(StoreError):
    """The database can't be reached now. Retrying may help."""

    def __init__(self, text: str = "", *, connections_used_up: bool = False) -> None:
        super().__init__(text)
        self.connections_used_up = connections_used_up


class StoreRefused(StoreError):
    """The database rejected a value or a statement. Retrying won't help."""


class JobError(HoldfastError):
    """An error of a handler, with a code for retry policies, logs and people."""

    default_code = "ERROR"

    def __init__(self, text: str = "", *, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code or self.default_code


class Permanent(JobError):
    """Raise it in a handler to fail the job without a retry."""

    default_code = "PERMANENT"


class UnstorableValue(Permanent):
    """JSON can't hold the result or the progress."""

    codes: Final = {"result": "UNSTORABLE_RESULT", "progress": "UNSTORABLE_PROGRESS"}

    def __init__(self, noun: str, reason: str) -> None:
        super().__init__(f"the {noun} can't be stored: {reason}", code=self.codes[noun])


class Transient(JobError):
    """Raise it in a handler to retry the job as its policy says."""

    default_code = "TRANSIENT"


class RetryAfter(Transient):
    """Raise it in a handler to retry the job, but not before `seconds`."""

    default_code = "RETRY_AFTER"

    def __init__(self, seconds: float, text: str = "", *, code: str | None = None) -> None:
        self.seconds = _number_of(seconds)
        super().__init__(text or f"retry after {self.seconds:g} s", code=code)


class JobTimeout(Transient):
    """The handler ran longer than its timeout."""

    default_code = "TIMEOUT"


class ProcessCrashed(JobError):
    """The process of `ctx.run_in_process` died, or could not be started."""

    default_code = "CRASHED"


class ProcessTimeout(JobError, TimeoutError):
    """The function of `ctx.run_in_process` ran longer than its timeout."""

    default_code = "PROCESS_TIMEOUT"


class Snooze(JobError):
    """Raise it in a handler to run the job again after `seconds`, without using an attempt."""

    default_code = "SNOOZED"

    def __init__(self, seconds: float, text: str = "", *, code: str | None = None) -> None:
        self.seconds = _number_of(seconds)
        super().__init__(text or f"snoozed for {self.seconds:g} s", code=code)


def _number_of(seconds: float) -> float:
    """The seconds may come from a header: raise in the handler if they are not a number."""
    number = float(seconds)
    if math.isnan(number):
        raise ValueError("the seconds to wait must be a number, not NaN")
    return number
