"""Every limit of the documents system in one place; `docs/systems/documents.md` explains each."""

from typing import Final

LOCK_SECONDS: Final = 120.0
POLL_SECONDS: Final = 15.0
TICK_SECONDS: Final = 2.0  # between two looks at whether it is time to poll; they cost no call
CONCURRENCY: Final = 8
ATTEMPTS_MAX: Final = 4
RETRY_SECONDS: Final = (60.0, 300.0, 900.0)
GENERATE_SECONDS_MAX: Final = 60.0
BATCH_DOCUMENTS_MAX: Final = 10_000  # of one batch
NAME_CHARS_MAX: Final = 200  # of a batch, a request hash or a correlation id over HTTP
