"""Messengers to pass to `Holdfast(messengers=[...])`, and what the author of another one needs."""

from holdfast.domain.messengers import MessengerStatus
from holdfast.runtime.seam import Seam
from holdfast.wakeups.broker import Broker, BrokerMessenger, Outgoing
from holdfast.wakeups.protocol import Heard, Hint, Listener, Messenger, Wakeup
from holdfast.wakeups.rabbitmq import RabbitMQ
from holdfast.wakeups.servicebus.messenger import ServiceBus, ServiceBusEscort

__all__ = [
    "Broker", "BrokerMessenger", "Heard", "Hint", "Listener", "Messenger", "MessengerStatus",
    "Outgoing", "RabbitMQ", "Seam", "ServiceBus", "ServiceBusEscort", "Wakeup",
]  # fmt: skip
