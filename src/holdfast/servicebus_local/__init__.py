"""A local Azure Service Bus, for development and tests."""

from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.server import DeadLetter, LocalServiceBus, StoredMessage

__all__ = ["DeadLetter", "LocalServiceBus", "QueueOptions", "StoredMessage"]
