"""What can be chosen for a queue."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.errors import ConfigurationError
from holdfast.servicebus_local.limits import (
    DELIVERIES_MAX,
    LOCK_SECONDS_MAX,
    LOCK_SECONDS_MIN,
    MESSAGE_BYTES_MAX,
)


@dataclass(frozen=True)
class QueueOptions:
    """How a queue of the local Service Bus behaves. Azure calls these the lock duration, the
    maximum delivery count, sessions, and dead-lettering on expiration."""

    lock_seconds: float = 30.0  # that a received message stays locked
    deliveries_max: int = 10  # failed ones, after which a message becomes a dead letter
    requires_session: bool = False
    dead_letter_expired: bool = False  # else, messages are dropped after their time to live
    message_bytes_max: int = MESSAGE_BYTES_MAX  # of a message or a batch

    def __post_init__(self) -> None:
        if not LOCK_SECONDS_MIN <= self.lock_seconds <= LOCK_SECONDS_MAX:
            raise ConfigurationError(
                f"lock_seconds must be between {LOCK_SECONDS_MIN} and {LOCK_SECONDS_MAX}"
            )
        if not 1 <= self.deliveries_max <= DELIVERIES_MAX:
            raise ConfigurationError(f"deliveries_max must be between 1 and {DELIVERIES_MAX}")
        if not 1 <= self.message_bytes_max <= MESSAGE_BYTES_MAX:
            raise ConfigurationError(f"message_bytes_max must be between 1 and {MESSAGE_BYTES_MAX}")
