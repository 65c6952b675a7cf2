"""Webhooks: events go to those who subscribed, attempt by attempt, until they arrive or die."""

from holdfast.webhooks.errors import BadEndpoint, DeadLetterNotFound, EventConflict
from holdfast.webhooks.policy import BPC, STANDARD
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
    "BPC",
    "STANDARD",
    "Attempt",
    "BadEndpoint",
    "DeadLetter",
    "DeadLetterNotFound",
    "Event",
    "EventConflict",
    "NewSubscription",
    "Saga",
    "Subscription",
    "Webhooks",
]
