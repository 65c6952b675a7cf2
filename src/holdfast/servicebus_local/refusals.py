"""Why the bus refuses something, with the condition and the status that clients know.

Refused
├── Unauthorized            no token, or one that was signed with another key
├── EntityNotFound          the queue was not declared
├── NotAllowed              not on this queue
├── Unsupported             the real service has it, this one does not
├── ArgumentError           a request that makes no sense
│   └── Malformed           bytes that are no AMQP
├── MessageTooLarge
├── QuotaExceeded           the queue is full
├── MessageNotFound         no such deferred or scheduled message
├── MessageLockLost         settled, or the lock expired
├── SessionLockLost
├── SessionCannotBeLocked   somebody else has it
└── TimedOut                no session became available in time
"""

from __future__ import annotations

from typing import ClassVar


class Refused(Exception):
    condition: ClassVar[str]
    status: ClassVar[int]


class Unauthorized(Refused):
    condition = "amqp:unauthorized-access"
    status = 401


class EntityNotFound(Refused):
    condition = "amqp:not-found"
    status = 404

    def __init__(self, address: str) -> None:
        super().__init__(f"The messaging entity '{address}' could not be found.")


class NotAllowed(Refused):
    condition = "amqp:not-allowed"
    status = 400


class Unsupported(Refused):
    condition = "amqp:not-implemented"
    status = 501


class ArgumentError(Refused):
    condition = "com.microsoft:argument-error"
    status = 400


class Malformed(ArgumentError):
    condition = "amqp:decode-error"


class MessageTooLarge(Refused):
    condition = "amqp:link:message-size-exceeded"
    status = 413

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"The received message (size:{size} bytes) exceeds the limit ({limit} bytes)"
            " currently allowed on the link."
        )


class QuotaExceeded(Refused):
    condition = "amqp:resource-limit-exceeded"
    status = 403


class MessageNotFound(Refused):
    condition = "com.microsoft:message-not-found"
    status = 404

    def __init__(self, sequence_number: int) -> None:
        super().__init__(f"There is no such message: sequence number {sequence_number}.")


class MessageLockLost(Refused):
    condition = "com.microsoft:message-lock-lost"
    status = 410

    def __init__(self) -> None:
        super().__init__(
            "The lock supplied is invalid. Either the lock expired, or the message has already"
            " been removed from the queue."
        )


class SessionLockLost(Refused):
    condition = "com.microsoft:session-lock-lost"
    status = 410

    def __init__(self) -> None:
        super().__init__("The session lock was lost. Request a new session receiver.")


class SessionCannotBeLocked(Refused):
    condition = "com.microsoft:session-cannot-be-locked"
    status = 410

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The requested session '{session_id}' cannot be accepted. It may be locked by"
            " another receiver."
        )


class TimedOut(Refused):
    condition = "com.microsoft:timeout"
    status = 408
