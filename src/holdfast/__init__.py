"""Durable, lease-based job processing for Python, on the database that you already have."""

from holdfast.app import Holdfast
from holdfast.bulk import Choice, Progress
from holdfast.context import Context
from holdfast.definition import JobFunction
from holdfast.domain.breakers import Breaker, BreakerSeen
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
from holdfast.domain.health.findings import Check, Examination, Finding, Severity
from holdfast.domain.job import Attempt, Filter, Job, Page
from holdfast.domain.queues import QueueSeen
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.domain.why import Reason, Why
from holdfast.domain.workers import WorkerSeen
from holdfast.worker.report import WorkerReport

__all__ = [
    "AlreadyRequeued",
    "Attempt",
    "BadArguments",
    "Breaker",
    "BreakerSeen",
    "Check",
    "Choice",
    "ConfigurationError",
    "Context",
    "DuplicateJob",
    "ErrorGroup",
    "ErrorGroups",
    "Examination",
    "Filter",
    "Finding",
    "Holdfast",
    "HoldfastError",
    "IdempotencyConflict",
    "Job",
    "JobError",
    "JobFailed",
    "JobFunction",
    "JobNotFound",
    "JobTimeout",
    "LeaseLost",
    "NotInThisStore",
    "Page",
    "PayloadTooLarge",
    "Permanent",
    "Progress",
    "QueueSeen",
    "Reason",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "SchemaMismatch",
    "Severity",
    "Snooze",
    "State",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "Transient",
    "UnstorableValue",
    "Why",
    "WorkerHung",
    "WorkerReport",
    "WorkerSeen",
    "WrongState",
]
