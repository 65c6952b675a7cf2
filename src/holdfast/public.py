"""The public names of `import holdfast`. Add a new one here and to `__all__`."""

from holdfast.app import Holdfast
from holdfast.context import Context
from holdfast.domain.breakers import Breaker, BreakerStatus
from holdfast.domain.diagnosis.findings import Check, Examination, Finding, Severity
from holdfast.domain.errors import (
    AlreadyRequeued,
    BadArguments,
    ConfigurationError,
    DuplicateJob,
    HoldfastError,
    IdempotencyConflict,
    JobError,
    JobFailed,
    JobNotFound,
    JobTimeout,
    LeaseLost,
    NotInThisStore,
    PayloadTooLarge,
    Permanent,
    ResultTimeout,
    RetryAfter,
    SchemaMismatch,
    Snooze,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    Transient,
    UnstorableValue,
    WorkerHung,
    WrongState,
)
from holdfast.domain.groups import ErrorGroup, ErrorGroups
from holdfast.domain.job import Attempt, Filter, Job, Page
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.domain.why import Reason, Why
from holdfast.domain.workers import WorkerStatus
from holdfast.job_function import JobFunction
from holdfast.operations.bulk import Choice, Progress
from holdfast.transactions.tables import Statements, Tables
from holdfast.worker.report import WorkerReport

__all__ = [
    "AlreadyRequeued", "Attempt", "BadArguments", "Breaker", "BreakerStatus", "Check", "Choice",
    "ConfigurationError", "Context", "DuplicateJob", "ErrorGroup", "ErrorGroups", "Examination",
    "Filter", "Finding", "Holdfast", "HoldfastError", "IdempotencyConflict", "Job", "JobError",
    "JobFailed", "JobFunction", "JobNotFound", "JobTimeout", "LeaseLost", "NotInThisStore", "Page",
    "PayloadTooLarge", "Permanent", "Progress", "QueueStatus", "Reason", "ResultTimeout", "Retry",
    "RetryAfter", "SchemaMismatch", "Severity", "Snooze", "State", "Statements", "StoreError",
    "StoreRefused", "StoreUnavailable", "Tables", "Transient", "UnstorableValue", "Why",
    "WorkerHung", "WorkerReport", "WorkerStatus", "WrongState",
]  # fmt: skip
