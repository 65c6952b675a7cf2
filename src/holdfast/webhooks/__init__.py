"""Webhooks: deliver events to subscribers, and keep what can't be delivered as dead letters."""

from holdfast.webhooks.errors import BadEndpoint, DeadLetterNotFound, EventConflict
from holdfast.webhooks.policy import STANDARD
from holdfast.webhooks.presets import Message, Preset, Request
from holdfast.webhooks.rows import Attempt, DeadLetter, Event, NewSubscription, Saga, Subscription
from holdfast.webhooks.service import Webhooks

__all__ = [
    "STANDARD", "Attempt", "BadEndpoint", "DeadLetter", "DeadLetterNotFound", "Event",
    "EventConflict", "Message", "NewSubscription", "Preset", "Request", "Saga", "Subscription",
    "Webhooks",
]  # fmt: skip
