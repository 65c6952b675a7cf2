"""A local Service Bus for a test, and Azure's own client for it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver

from holdfast.servicebus_local import LocalServiceBus, QueueOptions
from tests.support.processes import WAIT_SECONDS

StartBus: TypeAlias = Callable[[Mapping[str, QueueOptions]], LocalServiceBus]

NOTHING_SECONDS = 0.3  # of a receive that is to find nothing


@pytest.fixture
def servicebus() -> Iterator[StartBus]:
    """Start a bus with these queues."""
    started: list[LocalServiceBus] = []

    def start(queues: Mapping[str, QueueOptions]) -> LocalServiceBus:
        bus = LocalServiceBus(queues=queues)
        bus.start()
        started.append(bus)
        return bus

    yield start
    for bus in started:
        bus.stop()
    gc.collect()  # see tests/conftest.py


@pytest.fixture
def lost_sockets() -> Iterator[None]:
    """For tests that cut connections: Azure's client leaves those sockets to the garbage collector.
    Use it with LOST_SOCKETS, and no other test hears of them."""
    yield
    gc.collect()


UNCLOSED = pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")
LOST_SOCKETS = [UNCLOSED, pytest.mark.usefixtures("lost_sockets")]


@contextmanager
def connected(bus: LocalServiceBus) -> Iterator[ServiceBusClient]:
    """Azure's client. It reports the first error instead of trying again."""
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        yield client


def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages: a call may return with fewer."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        more = receiver.receive_messages(count - len(messages), max_wait_time=WAIT_SECONDS)
        assert more, f"only {len(messages)} of {count} messages came"
        messages += more
    return messages


def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    return receive(receiver)[0]


def assert_nothing(receiver: ServiceBusReceiver) -> None:
    assert receiver.receive_messages(1, max_wait_time=NOTHING_SECONDS) == []


def text(message: ServiceBusReceivedMessage) -> str:
    return b"".join(message.body).decode()


def texts(messages: Iterable[ServiceBusReceivedMessage]) -> list[str]:
    return [text(message) for message in messages]
