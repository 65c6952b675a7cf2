"""What a messenger reports about itself."""

from __future__ import annotations

import msgspec


class MessengerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How well one process can send and receive hints through a messenger. Without it, workers
    find new jobs by polling.

    `since_seconds` is how long it has been live, or away for the reason in `because`. The seconds
    since the last message are None if there was none. `dropped` counts hints that were not sent.
    """

    name: str
    address: str = ""  # without a password
    live: bool
    since_seconds: float = 0.0
    because: str | None = None
    heard_seconds: float | None = None
    sent_seconds: float | None = None
    heard: int = 0
    sent: int = 0
    dropped: int = 0
