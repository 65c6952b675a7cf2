"""One bus with a queue, and Azure's client for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusSender

from holdfast.servicebus_local import LocalServiceBus, QueueOptions
from tests.support.servicebus import connected, lost_sockets

__all__ = ["lost_sockets"]

LOCK_SECONDS = 30.0
DELIVERIES_MAX = 3


@pytest.fixture
def bus() -> Iterator[LocalServiceBus]:
    queues = {
        "jobs": QueueOptions(lock_seconds=LOCK_SECONDS, deliveries_max=DELIVERIES_MAX),
        "expiring": QueueOptions(dead_letter_expired=True),
        "sessions": QueueOptions(lock_seconds=LOCK_SECONDS, requires_session=True),
        "small": QueueOptions(message_bytes_max=1000),
    }
    with LocalServiceBus(queues=queues) as bus:
        yield bus


@pytest.fixture
def client(bus: LocalServiceBus) -> Iterator[ServiceBusClient]:
    with connected(bus) as client:
        yield client


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    with client.get_queue_sender("jobs") as sender:
        yield sender
