"""Everything that the author of a store needs: the protocol, its types and errors, and the loader
of SQL statements. See `docs/internals/stores.md`."""

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    DuplicateJob,
    IdempotencyConflict,
    NotInThisStore,
    PayloadTooLarge,
    SchemaMismatch,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.domain.job import (
    DEFAULT_TENANT,
    Attempt,
    CappedCount,
    CappedCounts,
    Claimed,
    Count,
    Filter,
    Job,
    JobStatus,
    Lease,
    Lost,
    NewJob,
    Page,
    Receipt,
    Reclaimed,
    Settlement,
    Standing,
    Watched,
    cancel_reason,
)
from holdfast.domain.limits import (
    BREAKERS_LISTED_MAX,
    COUNTS_LOOK_MAX,
    CRASHES_IN_COMPANY_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    SUSPECTS_COUNTED_MAX,
    WORKERS_LISTED_MAX,
)
from holdfast.domain.overview import Pulse
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.states import ENDED, LIVE, State, may_become
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import (
    CAPABILITIES,
    Breakers,
    Canceled,
    Claim,
    CountsUpTo,
    Diagnosis,
    Enrolled,
    FullStore,
    History,
    Listening,
    Pooled,
    ProgressNotes,
    QueueControl,
    RemoteLeases,
    Store,
    Suspects,
    Transactions,
    Watching,
    WorkerPresence,
    capability,
    require,
)
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.protocol import Heard, Listener, Wakeup

__all__ = [
    "A_WEEK", "BREAKERS_LISTED_MAX", "CAPABILITIES", "COUNTS_LOOK_MAX", "CRASHES_IN_COMPANY_MAX",
    "DEFAULT_TENANT", "ENDED", "LIVE", "PRIORITY_MAX", "PRIORITY_MIN", "SUSPECTS_COUNTED_MAX",
    "WORKERS_LISTED_MAX", "Attempt", "BadArguments", "BreakerStatus", "Breakers", "Canceled",
    "CappedCount", "CappedCounts", "Circumstances", "Claim", "Claimed", "ConfigurationError",
    "Count", "CountsUpTo", "Diagnosis", "Driver", "DuplicateJob", "Enrolled", "Filter", "FullStore",
    "Heard", "History", "IdempotencyConflict", "Job", "JobStatus", "Lease", "Listener", "Listening",
    "Load", "Lost", "NewJob", "NewWorker", "NotInThisStore", "Page", "Parking", "Patience",
    "PayloadTooLarge", "Pooled", "ProgressNotes", "Pulse", "QueueControl", "QueueStatus", "Receipt",
    "Reclaimed", "RemoteLeases", "Retention", "SchemaMismatch", "Seam", "Settings", "Settlement",
    "Standing", "State", "Statement", "Store", "StoreError", "StoreRefused", "StoreUnavailable",
    "Strike", "Suspects", "Transactions", "Vitals", "Wakeup", "Watched", "Watching",
    "WorkerPresence", "WorkerStatus", "cancel_reason", "capability", "load", "may_become",
    "read_sql", "require",
]  # fmt: skip
