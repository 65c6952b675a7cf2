"""Every limit of the engine, in one place. `docs/reference/limits.md` explains each."""

from typing import Final

PAYLOAD_BYTES_MAX: Final = 256 * 1024  # default of the setting `payload_bytes_max`
RESULT_BYTES_MAX: Final = 1024 * 1024  # default of the setting `result_bytes_max`
STORED_BYTES_MAX: Final = 128 * 1024 * 1024  # the most that these two settings can be
PROGRESS_BYTES_MAX: Final = 16 * 1024
JSON_DEPTH_MAX: Final = 64
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

NAME_CHARS_MAX: Final = 200  # job names, queues, tenants, correlation ids, worker ids
KEY_CHARS_MAX: Final = 500  # idempotency keys
KEY_BYTES_MAX: Final = 1500  # in UTF-8; with a tenant's name, an index entry of PostgreSQL's
TAG_CHARS_MAX: Final = 100
TAGS_MAX: Final = 32

PRIORITY_MIN: Final = -32768
PRIORITY_MAX: Final = 32767
ATTEMPTS_MAX: Final = 1000
DELAY_SECONDS_MAX: Final = 10 * 366 * 86400
YEAR_MIN: Final = 1970  # of a time that a caller gives
YEAR_MAX: Final = 2999

ERROR_CODE_CHARS_MAX: Final = 100
ERROR_TEXT_CHARS_MAX: Final = 8000

SNOOZES_MAX: Final = 1000  # snoozes of one job; the next one counts as a failed attempt
RELEASES_MAX: Final = 100  # attempts given back to one job; the next release keeps its attempt
HAND_BACK_SECONDS_MIN: Final = 1  # until a job is due again whose arguments a worker doesn't know
HAND_BACK_SECONDS_MAX: Final = 60  # that doubles with each release, up to this

ENQUEUE_BATCH_MAX: Final = 10_000  # jobs in one call of enqueue_many
ENQUEUE_BYTES_MAX: Final = 4 * 1024 * 1024  # arguments in one statement
CLAIM_BATCH_MAX: Final = 1000
CLAIM_BYTES_AIM: Final = 8 * 1024 * 1024  # arguments above which claims get smaller
CLAIM_BYTES_MAX: Final = CLAIM_BATCH_MAX * PAYLOAD_BYTES_MAX  # that one claim may bring
SETTLE_BATCH_MAX: Final = 1000
SETTLE_BYTES_MAX: Final = 4 * 1024 * 1024  # results in one statement
SETTLE_BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024  # results that wait to be written
RECLAIM_BATCH_MAX: Final = 500
TIDY_ROWS_MAX: Final = 1000  # rows in one step of upkeep
PAGE_ROWS_MAX: Final = 1000
PAGE_LOOK_MAX: Final = 10_000  # rows that one step of a filtered list looks at
PAGE_STEPS_MAX: Final = 20  # such steps in one call; the page says where to go on
GROUPS_LOOK_MAX: Final = (
    10_000  # the newest jobs that `error_groups` looks at unless told otherwise
)
CHANGES_TOGETHER_MAX: Final = 50  # jobs that `requeue_many` and the like change at a time
PURGE_ROWS_MAX: Final = 500  # jobs that `purge` cancels at a time
HISTORY_RULES_MAX: Final = 100  # rules of the setting `history_kept_rules`
HISTORY_KEY_DAYS_MAX: Final = 100  # days of partitions for jobs that are kept for their keys
HISTORY_SECONDS_MAX: Final = 10 * 366 * 86400
HISTORY_DAYS_AHEAD: Final = 2  # PostgreSQL: partitions that are made before they are needed
HISTORY_STRAYS_MAX: Final = 10_000  # rows that a new partition takes from `history_rest`
HISTORY_REST_BYTES_MAX: Final = 512 * 1024 * 1024  # of `history_rest`; read for a new partition
HISTORY_COUNTS_FOLDED_MAX: Final = 10_000  # rows of `history_counts` in one step of upkeep

CRASHES_IN_COMPANY_MAX: Final = 2  # with so many crashes a job waits for its own process
SUSPECTS_COUNTED_MAX: Final = 100  # stand for any number above
CHILD_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # between a worker and a child process
WORKER_LOST_LEASES: Final = 2  # a worker that is not seen for so many of its leases is lost
WORKER_KEPT_LEASES: Final = 40  # and after so many it is forgotten
WORKERS_LISTED_MAX: Final = 1000
QUEUE_RUNNING_MAX: Final = 1_000_000  # the highest cap of a queue
PARKED_COUNTED_MAX: Final = 10_000  # jobs that one breaker holds, where they are counted
PARK_ROWS_MAX: Final = 1000  # jobs that are held or let go in one step
PROBES_MAX: Final = 100  # jobs that one claim sends ahead
PROBE_LOOK_MAX: Final = 10_000  # parked jobs of a breaker that one search for a probe reads
PROBES_FREE_MAX: Final = 5  # failed probes of one job; from then on each costs it an attempt
BREAKERS_LISTED_MAX: Final = 1000
BREAKER_FAILURES_MAX: Final = 1000  # that a breaker may be told to wait for
BREAKER_DOUBT_FACTOR: Final = 4  # times as many failures open a breaker if others succeed meanwhile
BREAKERS_REMEMBERED_MAX: Final = 10_000  # of which a worker knows when it last found them at work
BREAKER_KEPT_SECONDS: Final = 86400  # after which a breaker that stays closed is forgotten
LATENCY_JOBS_MAX: Final = 500  # the newest ended jobs that an overview measures
RATE_JOBS_MAX: Final = 2000  # the newest of which it counts those of the last minute
OVERVIEW_FAILURES_MAX: Final = 50  # the newest failures that it lists
AHEAD_COUNTED_MAX: Final = 1000  # jobs ahead of another in its queue; more make no difference
DUE_COUNTED_MAX: Final = 200  # due jobs of a queue and priority that an examination looks at
DUE_LANES_MAX: Final = 500  # queues and priorities that it looks at
STUCK_COUNTED_MAX: Final = 1000  # leases that ran out, where an examination counts them
ENDED_LOOK_MAX: Final = 10_000  # the newest ended jobs that an examination counts
FAILURES_LOOK_MAX: Final = 2000  # the newest failures that it groups
LEFTOVERS_COUNTED_MAX: Final = 1000  # jobs that upkeep left, where an examination counts them
STOP_SECONDS_MAX: Final = 10  # what a worker takes to stop when its grace time is over

REPR_CHARS_MAX: Final = 1000  # what a result keeps of an object that JSON can't hold
PREVIEW_BYTES_MAX: Final = 1000  # what is kept of a result that is too large
ERROR_FRAMES_MAX: Final = 5  # innermost frames in an error text
