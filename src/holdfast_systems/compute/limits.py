"""Every limit of this system. `docs/systems/compute.md` explains each."""

from typing import Final

BODY_BYTES_MAX: Final = 256 * 1024  # of one request to the API
INPUTS_BYTES_MAX: Final = 1024 * 1024  # of one request to the AppServer
INPUTS_DEPTH_MAX: Final = 32  # how deep lists and objects may be nested, after the defaults
APP_ID_CHARS_MAX: Final = 100
PRIORITY_DEFAULT: Final = 100
PRIORITY_MAX: Final = 1000

OUTPUTS_BYTES_MAX: Final = 4 * 1024 * 1024  # of one answer of the AppServer
ARTIFACTS_MAX: Final = 20  # of one answer
KIND_CHARS_MAX: Final = 50
URL_CHARS_MAX: Final = 2000

RETRY_AFTER_SECONDS_MAX: Final = 3600  # the longest that is honored

CONTRACT_ERRORS_MAX: Final = 20  # told about one document
ERROR_CHARS_MAX: Final = 300  # of one such error, and of what an AppServer said

TIMEOUT_SECONDS_MAX: Final = 24 * 3600.0
TIMEOUT_MARGIN_SECONDS: Final = 15.0  # for the database, beyond the AppServer's own time
ATTEMPTS_MAX: Final = 5
