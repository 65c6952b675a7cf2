"""Every limit of the HTTP API, in one place. `docs/reference/limits.md` explains each."""

from typing import Final

from holdfast.domain.limits import JSON_DEPTH_MAX

HEAD_BYTES_MAX: Final = 32 * 1024  # the request line and the headers
HEAD_SECONDS_MAX: Final = 10.0  # for a client to send them
STALL_SECONDS_MAX: Final = 60.0  # for a client to read some of its response
KEEP_ALIVE_SECONDS: Final = 75  # of an idle connection; longer than the 60 s of most proxies
CONNECTIONS_MAX: Final = 2000  # per server; above this, one that is idle or stalled is closed
BODY_BYTES_MAX: Final = 1024 * 1024
BODY_SECONDS_MAX: Final = 20.0  # for a client to send it
DEPTH_MAX: Final = JSON_DEPTH_MAX + 4  # of a body: the arguments of a job, nested in a batch
BATCH_JOBS_MAX: Final = 1000
PAGE_JOBS_DEFAULT: Final = 50
PAGE_JOBS_MAX: Final = 200
PAGE_STEP_JOBS_MAX: Final = 25  # read at once for a page; each may be megabytes
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # of a page with more than one job
RELATED_JOBS_MAX: Final = 50
JOBS_COUNTED_MAX: Final = 10_000  # per queue and state
WAIT_SECONDS_MAX: Final = 50.0  # for a result or a lease; many proxies give up after 60 s
WAITING_PER_KEY_MAX: Final = 1000  # waiting requests and streams of one key on one server
STREAM_JOBS_MAX: Final = 100  # in one stream of events
STREAM_KEEP_ALIVE_SECONDS: Final = 15.0  # between two comment lines in a quiet stream
SINGLE_READS_MAX: Final = 10  # jobs read per tick from a store that reads them one by one
DATABASE_SECONDS_MAX: Final = 2.0  # after which a slow request makes the server check the database
READY_SECONDS_MAX: Final = 2.0  # for each check of `/v1/health/ready`
RETRY_AFTER_SECONDS: Final = 1  # how long clients wait if the database can't be reached
IDEMPOTENCY_KEY_CHARS_MAX: Final = 255
BULK_RATE_MAX: Final = 10_000  # jobs per second of a bulk change
IN_FLIGHT_SECONDS_MAX: Final = 60.0  # after which a repeated request takes over its key
ANSWER_BYTES_MAX: Final = 2 * 1024 * 1024  # of a response stored for an Idempotency-Key, compressed
REQUESTS_PER_SECOND: Final = 1000.0  # per key, unless it has its own limit
FAILED_KEYS_PER_SECOND: Final = 20.0  # from one address
KEY_KEPT_SECONDS: Final = 2.0  # a revoked key works no longer than this
KEYS_KEPT_MAX: Final = 10_000  # in memory
ADDRESSES_WATCHED_MAX: Final = 10_000
LEASES_MAX: Final = 100  # in one request for leases
LEASE_SECONDS_MIN: Final = 1.0  # of `ttl_seconds`
LEASE_SECONDS_MAX: Final = 3600.0
NAMES_MAX: Final = 100  # names, and queues, in one request for leases
RENEWALS_MAX: Final = 1000  # in one request
REQUEST_ID_CHARS_MAX: Final = 100
WORKER_CHARS_MAX: Final = 100  # of the name of an HTTP worker
