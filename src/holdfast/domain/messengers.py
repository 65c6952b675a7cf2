"""What a messenger reports about itself."""

from __future__ import annotations

from typing import Final

import msgspec

# Why a service or a worker is not ready that requires its messengers. It never changes.
QUEUE_UNAVAILABLE: Final = "QUEUE_UNAVAILABLE"


class MessengerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How well one process can send and receive hints through a messenger. Without it, workers
    find new jobs by polling.

    `since_seconds` is how long it has been live, or away for the reason in `because`. The seconds
    since the last message are None if there was none. `dropped` counts hints that were not sent.
    """

    name: str
    address: str = ""  # without a password
    live: bool
    used: bool = True  # whether this process sends or listens with it
    fallback: str | None = None  # what finds new jobs while it is away
    since_seconds: float = 0.0
    because: str | None = None
    heard_seconds: float | None = None
    sent_seconds: float | None = None
    heard: int = 0
    sent: int = 0
    dropped: int = 0

    @property
    def is_down(self) -> bool:
        return self.used and not self.live

    @property
    def last_seconds(self) -> float | None:
        """Since the last message, sent or received."""
        both = (self.heard_seconds, self.sent_seconds)
        return min((each for each in both if each is not None), default=None)


STATUSES: Final = msgspec.json.Decoder(tuple[MessengerStatus, ...])
