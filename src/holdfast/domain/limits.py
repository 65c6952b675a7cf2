"""Every limit of the engine, in one place. `docs/reference/limits.md` explains each."""

from typing import Final

PAYLOAD_BYTES_MAX: Final = 256 * 1024  # default of the setting `payload_bytes_max`
RESULT_BYTES_MAX: Final = 1024 * 1024  # default of the setting `result_bytes_max`
STORED_BYTES_MAX: Final = 128 * 1024 * 1024  # the maximum of these two settings
PROGRESS_BYTES_MAX: Final = 16 * 1024
JSON_DEPTH_MAX: Final = 64
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

NAME_CHARS_MAX: Final = 200  # job names, queues, tenants, correlation ids, worker ids
KEY_CHARS_MAX: Final = 500  # idempotency keys
KEY_BYTES_MAX: Final = 1500  # in UTF-8, to fit a PostgreSQL index entry with a tenant
TAG_CHARS_MAX: Final = 100
TAGS_MAX: Final = 32

PRIORITY_MIN: Final = -32768
PRIORITY_MAX: Final = 32767
ATTEMPTS_MAX: Final = 1000
DELAY_SECONDS_MAX: Final = 10 * 366 * 86400
YEAR_MIN: Final = 1970  # of times that callers pass
YEAR_MAX: Final = 2999

ERROR_CODE_CHARS_MAX: Final = 100
ERROR_TEXT_CHARS_MAX: Final = 8000

SNOOZES_MAX: Final = 1000  # of one job; the next one counts as a failed attempt
RELEASES_MAX: Final = 100  # of one job; the next one uses up its attempt
HAND_BACK_SECONDS_MIN: Final = 1  # delay of a job that was handed back
HAND_BACK_SECONDS_MAX: Final = 60  # the delay doubles with each release, up to this

ENQUEUE_BATCH_MAX: Final = 10_000  # jobs in one call to enqueue_many
ENQUEUE_BYTES_MAX: Final = 4 * 1024 * 1024  # arguments in one statement
HINTS_AT_ONCE_MAX: Final = 100  # messages for the jobs of one call to enqueue_many
HINTS_WAITING_MAX: Final = 1000  # hints that wait for a broker
CLAIM_BATCH_MAX: Final = 1000
CLAIM_BYTES_AIM: Final = 8 * 1024 * 1024  # arguments above which claims get smaller
CLAIM_BYTES_MAX: Final = CLAIM_BATCH_MAX * PAYLOAD_BYTES_MAX  # arguments in one claim
SETTLE_BATCH_MAX: Final = 1000
SETTLE_BYTES_MAX: Final = 4 * 1024 * 1024  # results in one statement
SETTLE_BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024  # results waiting to be written
RECLAIM_BATCH_MAX: Final = 500
TIDY_ROWS_MAX: Final = 1000  # rows in one step of upkeep
PAGE_ROWS_MAX: Final = 1000
SCAN_ROWS_MAX: Final = 100  # whole jobs read at once by a search through all; each may be megabytes
PAGE_LOOK_MAX: Final = 10_000  # rows that one step of a filtered list looks at
PAGE_STEPS_MAX: Final = 20  # such steps in one call
COUNTS_LOOK_MAX: Final = 100_000  # waiting jobs that a capped count of one tenant reads
SEARCH_CHARS_MAX: Final = 2000  # of a search text
COMPLETIONS_MAX: Final = 10  # of an unfinished search
GROUPS_LOOK_MAX: Final = 10_000  # newest jobs that `hf.dead.groups` looks at by default
GROUP_QUEUES_MAX: Final = 20  # queues that an error group names
GROUP_TENANTS_MAX: Final = 20  # tenants that it names, those with most jobs
GROUP_STEP_JOBS_MAX: Final = 500  # jobs in one step that keeps the groups up to date
GROUPS_PAGE_LOOK_MAX: Final = 2000  # groups that one page of a filtered list looks at
GROUPS_COUNTED_MAX: Final = 10_000  # groups whose states are counted
GROUPS_CHANGED_MAX: Final = 100  # groups that one call changes
GROUP_RESOLVED_SECONDS: Final = 90 * 86400  # that a resolved group without jobs is kept
CHANGES_TOGETHER_MAX: Final = 50  # jobs in one step of `requeue_many` and the like
PURGE_ROWS_MAX: Final = 500  # jobs in one step of `purge`
BULK_JOBS_MAX: Final = 100_000  # jobs of one bulk change
BULK_IDS_MAX: Final = 10_000  # of them, if given as a list of IDs
BULK_PREVIEW_SECONDS_MAX: Final = 20  # of the search for them
BULK_SAMPLE_BYTES_MAX: Final = 256 * 1024  # of the jobs that a preview shows
BULK_STEP_JOBS_MAX: Final = 25  # jobs that one transaction of a bulk change changes
BULK_RATE_MIN: Final = 0.001  # jobs per second of a change of many jobs
BULK_LEASE_SECONDS: Final = 5  # after which another server continues a bulk change
BULK_RUNNING_MAX: Final = 10  # bulk changes that one server runs at a time
HISTORY_RULES_MAX: Final = 100  # rules in the setting `history_kept_rules`
HISTORY_KEY_DAYS_MAX: Final = 100  # days of partitions for jobs kept for their keys
HISTORY_SECONDS_MAX: Final = 10 * 366 * 86400
HISTORY_DAYS_AHEAD: Final = 2  # PostgreSQL: partitions created ahead
HISTORY_STRAYS_MAX: Final = 10_000  # rows that a new partition moves from `history_rest`
HISTORY_REST_BYTES_MAX: Final = 512 * 1024 * 1024  # of `history_rest`, which a new partition reads
HISTORY_COUNTS_FOLDED_MAX: Final = 10_000  # rows of `history_counts` in one step of upkeep

CRASHES_IN_COMPANY_MAX: Final = 2  # after this many, a job runs in quarantine
SUSPECTS_COUNTED_MAX: Final = 100  # stands for any larger number
CHILD_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # between a worker and a child process
PICKLE_BYTES_MAX: Final = 32 * 1024 * 1024  # arguments, or result, of `ctx.run_in_process`
WORKER_LOST_LEASES: Final = 2  # a worker without a heartbeat for this many leases is lost
WORKER_KEPT_LEASES: Final = 40  # and after this many its row is deleted
WORKERS_LISTED_MAX: Final = 1000
MESSENGERS_REPORTED_MAX: Final = 10  # that a worker's heartbeat describes
MESSENGER_TEXT_CHARS_MAX: Final = 300  # of a messenger's address, and of why it is away
QUEUE_RUNNING_MAX: Final = 1_000_000  # the highest cap of a queue
PARKED_COUNTED_MAX: Final = 10_000  # parked jobs of one breaker
PARK_ROWS_MAX: Final = 1000  # jobs parked or unparked in one step
PROBES_MAX: Final = 100  # probes in one claim
PROBE_LOOK_MAX: Final = 10_000  # parked jobs of a breaker that one search for a probe reads
PROBES_FREE_MAX: Final = 5  # failed probes of one job; each later one uses up an attempt
BREAKERS_LISTED_MAX: Final = 1000
BREAKER_FAILURES_MAX: Final = 1000  # the maximum of `Breaker.failures`
BREAKER_DOUBT_FACTOR: Final = 4  # times as many failures open a breaker if others succeed
BREAKERS_REMEMBERED_MAX: Final = 10_000  # whose last success a worker remembers
BREAKER_KEPT_SECONDS: Final = 86400  # after which the record of a closed breaker is deleted
LATENCY_JOBS_MAX: Final = 500  # newest ended jobs that an overview measures
RATE_JOBS_MAX: Final = 2000  # newest ended jobs that its rate counts
OVERVIEW_FAILURES_MAX: Final = 50  # newest failures that it lists
AHEAD_COUNTED_MAX: Final = 1000  # jobs ahead of another in its queue
DUE_COUNTED_MAX: Final = 200  # due jobs of a lane that an examination looks at
DUE_LANES_MAX: Final = 500  # lanes that it looks at
HANDED_BACK_LOOK_MAX: Final = 1000  # jobs of a lane among which it looks for handed-back ones
STUCK_COUNTED_MAX: Final = 1000  # expired leases that it counts
ENDED_LOOK_MAX: Final = 10_000  # newest ended jobs that it counts
FAILURES_LOOK_MAX: Final = 2000  # newest failures that it groups
LEFTOVERS_COUNTED_MAX: Final = 1000  # jobs left by upkeep that it counts
STOP_SECONDS_MAX: Final = 10  # for a worker to exit after its grace time
AFTER_COMMIT_SECONDS_MAX: Final = 5  # for each function that runs after a commit
HOOK_SECONDS_MAX: Final = 5  # for each function that runs after a handler

REPR_CHARS_MAX: Final = 1000  # of an object that JSON can't hold, in a result
PREVIEW_BYTES_MAX: Final = 1000  # of a result that is too large
ERROR_FRAMES_MAX: Final = 5  # innermost frames in an error text
