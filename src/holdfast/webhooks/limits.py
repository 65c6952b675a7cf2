"""Every limit of the webhooks, in one place. `docs/systems/webhooks.md` explains each."""

from typing import Final

URL_CHARS_MAX: Final = 2000
HOST_CHARS_MAX: Final = 253  # of a name that can be looked up
EVENT_TYPE_CHARS_MAX: Final = 200
EVENT_TYPES_MAX: Final = 100  # of one subscription
SUBSCRIPTIONS_MAX: Final = 1000  # of one tenant
PAYLOAD_BYTES_MAX: Final = 256 * 1024
SECRET_BYTES_MIN: Final = 24  # what Standard Webhooks asks for
SECRET_BYTES_MAX: Final = 64
SECRET_BYTES: Final = 32  # of a secret that is made here

RESPONSE_BYTES_MAX: Final = 64 * 1024  # read from a receiver's answer
RESPONSE_BYTES_KEPT: Final = 1024
RESPONSE_HEADERS_KEPT: Final = 20
HEADER_CHARS_KEPT: Final = 200
ERROR_TEXT_CHARS_MAX: Final = 500

TIMEOUT_SECONDS: Final = 15.0  # default of `timeout_seconds`: a whole request
TIMEOUT_SECONDS_MAX: Final = 300.0
CONNECT_SECONDS_MAX: Final = 10.0

LEASES_MAX: Final = 4  # of one delivery job: the fourth that is lost ends it
GUARD_SECONDS: Final = 60.0  # default of `guard_seconds`
GUARD_SECONDS_MIN: Final = 1.0
GUARD_SECONDS_MAX: Final = 86400.0
DEAD_LETTERS_PAGE_MAX: Final = 1000
