"""The public names of `import holdfast`. Add a new one here and to `__all__`."""

from holdfast.app import Holdfast
from holdfast.context import Context
from holdfast.domain.audit import AuditEntry, AuditFilter, AuditPage
from holdfast.domain.breakers import Breaker, BreakerStatus
from holdfast.domain.bulk import BulkAction, BulkChange, BulkCount, BulkPage, BulkState
from holdfast.domain.diagnosis.findings import Check, Examination, Finding, Severity
from holdfast.domain.encrypted_jobs import EncryptedValue
from holdfast.domain.encryption import Encrypted, Reencrypted, SecretCount
from holdfast.domain.errors import (
    AlreadyRequeued,
    BadArguments,
    BulkChangeNotFound,
    CannotDecrypt,
    ConfigurationError,
    DuplicateJob,
    ErrorGroupNotFound,
    HoldfastError,
    IdempotencyConflict,
    JobError,
    JobFailed,
    JobNotFound,
    JobTimeout,
    KeyNotFound,
    LeaseLost,
    NotInThisStore,
    PayloadTooLarge,
    Permanent,
    ProcessCrashed,
    ProcessTimeout,
    ResultTimeout,
    RetryAfter,
    SchemaMismatch,
    Snooze,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    Transient,
    UnknownSecretKey,
    UnreadableResult,
    UnstorableValue,
    WorkerHung,
    WrongState,
)
from holdfast.domain.groups import (
    ErrorGroup,
    ErrorGroups,
    GroupCounts,
    GroupFilter,
    GroupJob,
    GroupJobs,
    GroupOrder,
    GroupPage,
    GroupState,
    TenantJobs,
)
from holdfast.domain.job import Attempt, CappedCounts, Count, Filter, Job, Lease, Page
from holdfast.domain.keys import Key, NewKey
from holdfast.domain.messages import MessageStatus, Repair, Replayed
from holdfast.domain.outcomes import Judgment
from holdfast.domain.overview import Overview
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retry import Retry
from holdfast.domain.roles import Installation, InstalledRoles, RoleDifference
from holdfast.domain.samples import QueueSamples, Sample, Samples
from holdfast.domain.schemas import JobSchemas
from holdfast.domain.states import State
from holdfast.domain.why import Reason, Why
from holdfast.domain.workers import WorkerStatus
from holdfast.job_function import JobFunction
from holdfast.operations.steps import Choice, Progress
from holdfast.tenant import Tenant
from holdfast.transactions.tables import Statements, Tables
from holdfast.worker.log_filter import LogFilter
from holdfast.worker.middleware import CallNext
from holdfast.worker.report import WorkerReport
from holdfast.worker.sweeps import SweepContext

__all__ = [
    "AlreadyRequeued", "Attempt", "AuditEntry", "AuditFilter", "AuditPage", "BadArguments",
    "Breaker", "BreakerStatus", "BulkAction", "BulkChange", "BulkChangeNotFound", "BulkCount",
    "BulkPage", "BulkState", "CallNext", "CannotDecrypt", "CappedCounts", "Check", "Choice",
    "ConfigurationError", "Context", "Count", "DuplicateJob", "Encrypted", "EncryptedValue",
    "ErrorGroup", "ErrorGroupNotFound", "ErrorGroups", "Examination", "Filter", "Finding",
    "GroupCounts", "GroupFilter", "GroupJob", "GroupJobs", "GroupOrder", "GroupPage", "GroupState",
    "Holdfast", "HoldfastError", "IdempotencyConflict", "Installation", "InstalledRoles", "Job",
    "JobError", "JobFailed", "JobFunction", "JobNotFound", "JobSchemas", "JobTimeout", "Judgment",
    "Key", "KeyNotFound", "Lease", "LeaseLost", "LogFilter", "MessageStatus", "NewKey",
    "NotInThisStore", "Overview", "Page", "PayloadTooLarge", "Permanent", "ProcessCrashed",
    "ProcessTimeout", "Progress", "QueueSamples", "QueueStatus", "Reason", "Reencrypted", "Repair",
    "Replayed", "ResultTimeout", "Retry", "RetryAfter", "RoleDifference", "Sample", "Samples",
    "SchemaMismatch", "SecretCount", "Severity", "Snooze", "State", "Statements", "StoreError",
    "StoreRefused", "StoreUnavailable", "SweepContext", "Tables", "Tenant", "TenantJobs",
    "Transient", "UnknownSecretKey", "UnreadableResult", "UnstorableValue", "Why", "WorkerHung",
    "WorkerReport", "WorkerStatus", "WrongState",
]  # fmt: skip
