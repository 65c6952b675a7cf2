"""Every limit of the documents system in one place; `docs/systems/documents.md` explains each."""

from typing import Final

LOCK_SECONDS: Final = 120.0
POLL_SECONDS: Final = 15.0
CONCURRENCY: Final = 8
ATTEMPTS_MAX: Final = 4
RETRY_SECONDS: Final = (60.0, 300.0, 900.0)
GENERATE_SECONDS_MAX: Final = 60.0
