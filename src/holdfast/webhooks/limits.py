"""Every limit of the webhooks, in one place. `docs/systems/webhooks.md` explains each."""

from typing import Final

URL_CHARS_MAX: Final = 2000
HOST_CHARS_MAX: Final = 253  # the longest name that DNS can resolve
EVENT_TYPE_CHARS_MAX: Final = 200
EVENT_TYPES_MAX: Final = 100  # per subscription
SUBSCRIPTIONS_MAX: Final = 1000  # per tenant
PAYLOAD_BYTES_MAX: Final = 256 * 1024
SECRET_BYTES_MIN: Final = 24  # as Standard Webhooks requires
SECRET_BYTES_MAX: Final = 64
SECRET_BYTES: Final = 32  # of a generated secret
SECRET_KEPT_SECONDS: Final = 86400.0  # default of `keep_seconds`
SECRET_KEPT_SECONDS_MAX: Final = 365 * 86400

RESPONSE_BYTES_MAX: Final = 64 * 1024  # read from a response
RESPONSE_BYTES_KEPT: Final = 1024
RESPONSE_HEADERS_KEPT: Final = 20
HEADER_CHARS_KEPT: Final = 200
ERROR_TEXT_CHARS_MAX: Final = 500

TIMEOUT_SECONDS: Final = 15.0  # default of `timeout_seconds`, for a whole request
TIMEOUT_SECONDS_MAX: Final = 300.0
CONNECT_SECONDS_MAX: Final = 10.0

LEASES_MAX: Final = 4  # per delivery job: it ends when the fourth lease is lost
GUARD_SECONDS: Final = 60.0  # default of `guard_seconds`
GUARD_SECONDS_MIN: Final = 1.0
GUARD_SECONDS_MAX: Final = 86400.0
RETRY_AFTER_SECONDS_MAX: Final = 86400  # a receiver can't put an attempt off any longer
DISABLE_AFTER_SECONDS: Final = 5 * 86400  # default of `disable_after_seconds`
DISABLE_AFTER_SECONDS_MIN: Final = 60
DISABLE_AFTER_SECONDS_MAX: Final = 365 * 86400
SAGAS_AT_ONCE_MAX: Final = 100  # in one transaction of the orchestrator

PAGE_MAX: Final = 1000  # rows of one list
SAGAS_LOOK_MAX: Final = 1000  # rows that one page of filtered sagas reads

REPLAY_EVENTS_AT_ONCE_MAX: Final = 100  # in one transaction
REPLAY_WAITING_MAX: Final = 1000  # sagas of one replay; the next step waits for them
REPLAY_COUNTED_MAX: Final = 100_000  # events of a dry run

SAGAS_KEPT_SECONDS: Final = 30 * 86400  # default of `sagas_kept_seconds`
DEAD_LETTERS_KEPT_SECONDS: Final = 90 * 86400  # default of `dead_letters_kept_seconds`
KEPT_SECONDS_MIN: Final = 60
KEPT_SECONDS_MAX: Final = 100 * 365 * 86400
RETENTION_ROWS_MAX: Final = 500  # in one transaction
