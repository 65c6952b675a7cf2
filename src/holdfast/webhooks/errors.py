"""The errors that webhooks add to Holdfast's own.

HoldfastError
├── BadArguments
│   └── BadEndpoint
├── EventConflict
└── WebhookNotFound
    ├── SubscriptionNotFound
    ├── EventNotFound
    ├── SagaNotFound
    ├── DeadLetterNotFound
    └── ReplayNotFound
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from holdfast import BadArguments, HoldfastError


class BadEndpoint(BadArguments):
    """A URL, preset or secret that can't be used."""


class EventConflict(HoldfastError):
    """The ID belongs to another event."""

    def __init__(self, event_id: UUID) -> None:
        super().__init__(f"event ID {event_id} belongs to another event; nothing was published")
        self.event_id = event_id


class WebhookNotFound(HoldfastError):
    """What has this ID does not exist, or belongs to another tenant."""

    kind: ClassVar[str]

    def __init__(self, id: UUID) -> None:
        super().__init__(f"{self.kind} {id} does not exist")
        self.id = id


class SubscriptionNotFound(WebhookNotFound):
    """There is no subscription with this ID, or it was deleted."""

    kind = "subscription"


class EventNotFound(WebhookNotFound):
    """There is no event with this ID."""

    kind = "event"


class SagaNotFound(WebhookNotFound):
    """There is no saga with this ID."""

    kind = "saga"


class DeadLetterNotFound(WebhookNotFound):
    """There is no dead letter with this ID."""

    kind = "dead letter"


class ReplayNotFound(WebhookNotFound):
    """There is no replay with this ID."""

    kind = "replay"
