"""What the webhooks raise besides Holdfast's own errors.

HoldfastError
├── BadArguments
│   └── BadEndpoint        an address to which nothing may be sent, or a secret that can't sign
├── EventConflict          the event's id belongs to another event
└── DeadLetterNotFound
"""

from __future__ import annotations

from uuid import UUID

from holdfast import BadArguments, HoldfastError


class BadEndpoint(BadArguments):
    pass


class EventConflict(HoldfastError):
    def __init__(self, event_id: UUID) -> None:
        super().__init__(f"the id {event_id} belongs to another event; nothing was published")
        self.event_id = event_id


class DeadLetterNotFound(HoldfastError):
    def __init__(self, dead_letter_id: UUID) -> None:
        super().__init__(f"there is no dead letter {dead_letter_id}")
        self.dead_letter_id = dead_letter_id
