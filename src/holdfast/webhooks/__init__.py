"""Webhooks: deliver events to subscribers, and keep what can't be delivered as dead letters."""

from holdfast.webhooks.errors import (
    BadEndpoint,
    DeadLetterNotFound,
    EventConflict,
    EventNotFound,
    ReplayNotFound,
    SagaNotFound,
    SubscriptionNotFound,
    WebhookNotFound,
)
from holdfast.webhooks.policy import STANDARD
from holdfast.webhooks.presets import Message, Preset, Request
from holdfast.webhooks.rows import (
    Attempt,
    DeadLetter,
    Event,
    NewSubscription,
    Replay,
    ReplayCount,
    Saga,
    SagaPage,
    Subscription,
)
from holdfast.webhooks.service import Webhooks

__all__ = [
    "STANDARD", "Attempt", "BadEndpoint", "DeadLetter", "DeadLetterNotFound", "Event",
    "EventConflict", "EventNotFound", "Message", "NewSubscription", "Preset", "Replay",
    "ReplayCount", "ReplayNotFound", "Request", "Saga", "SagaNotFound", "SagaPage", "Subscription",
    "SubscriptionNotFound", "WebhookNotFound", "Webhooks",
]  # fmt: skip
