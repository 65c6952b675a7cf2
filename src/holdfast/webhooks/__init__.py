"""Webhooks: events go to those who subscribed, attempt by attempt, until they arrive or die."""

from holdfast.webhooks.errors import BadEndpoint, DeadLetterNotFound, EventConflict
from holdfast.webhooks.policy import STANDARD
from holdfast.webhooks.presets import Message, Preset, Request
from holdfast.webhooks.rows import (
    Attempt,
    DeadLetter,
    Event,
    NewSubscription,
    Saga,
    Subscription,
)
from holdfast.webhooks.service import Webhooks

__all__ = [
    "STANDARD",
    "Attempt",
    "BadEndpoint",
    "DeadLetter",
    "DeadLetterNotFound",
    "Event",
    "EventConflict",
    "Message",
    "NewSubscription",
    "Preset",
    "Request",
    "Saga",
    "Subscription",
    "Webhooks",
]
