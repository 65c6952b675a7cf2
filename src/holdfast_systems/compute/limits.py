"""Every limit of this system. `docs/systems/compute.md` explains each."""

from typing import Final

BODY_BYTES_MAX: Final = 256 * 1024  # one request to the API
INPUTS_BYTES_MAX: Final = 1024 * 1024  # one request to the AppServer
INPUTS_DEPTH_MAX: Final = 32  # nesting of lists and objects, with defaults
APP_ID_CHARS_MAX: Final = 100
PRIORITY_DEFAULT: Final = 100
PRIORITY_MAX: Final = 1000

OUTPUTS_BYTES_MAX: Final = 4 * 1024 * 1024  # one answer of the AppServer
ARTIFACTS_MAX: Final = 20  # in one answer
KIND_CHARS_MAX: Final = 50
URL_CHARS_MAX: Final = 2000

RETRY_AFTER_SECONDS_MAX: Final = 3600  # the longest that is honored

SCHEMA_BYTES_MAX: Final = 1024 * 1024  # one file of a contract
CONTRACT_ERRORS_MAX: Final = 20  # reported for one document
ERROR_CHARS_MAX: Final = 300  # of one of them, and of what an AppServer said

TIMEOUT_SECONDS_MAX: Final = 24 * 3600.0
TIMEOUT_MARGIN_SECONDS: Final = 15.0  # for the database, in addition to the AppServer's time
LOCK_RENEW_SECONDS: Final = 45.0  # default of LOCK_RENEW_SEC
DELIVERIES_MAX: Final = 20  # MAX_DELIVERY_COUNT

RETENTION_DAYS_MAX: Final = 36_500
FORGET_JOBS_MAX: Final = 200  # deleted in one transaction
FORGET_SECONDS: Final = 3600.0  # between two looks for what is too old
COUNTERS_SECONDS: Final = 60.0  # between two lines of a worker with the counters
