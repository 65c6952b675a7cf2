"""The errors that webhooks add to Holdfast's own.

HoldfastError
├── BadArguments
│   └── BadEndpoint
├── EventConflict
└── DeadLetterNotFound
"""

from __future__ import annotations

from uuid import UUID

from holdfast import BadArguments, HoldfastError


class BadEndpoint(BadArguments):
    """A URL, preset or secret that can't be used."""


class EventConflict(HoldfastError):
    """The ID belongs to another event."""

    def __init__(self, event_id: UUID) -> None:
        super().__init__(f"event ID {event_id} belongs to another event; nothing was published")
        self.event_id = event_id


class DeadLetterNotFound(HoldfastError):
    """There is no dead letter with this ID."""

    def __init__(self, dead_letter_id: UUID) -> None:
        super().__init__(f"dead letter {dead_letter_id} does not exist")
        self.dead_letter_id = dead_letter_id
