"""Cuts, restarts, and clients that send garbage: the bus keeps working, and loses nothing."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from holdfast.domain.errors import ConfigurationError
from holdfast.servicebus_local import LocalServiceBus, QueueOptions
from holdfast.servicebus_local.limits import FRAME_BYTES_MAX
from tests.servicebus_local.conftest import LOCK_SECONDS
from tests.servicebus_local.messages import section
from tests.support.processes import WAIT_SECONDS
from tests.support.servicebus import LOST_SOCKETS, connected, receive_one, text

pytestmark = LOST_SOCKETS

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, TRANSFER = 0x10, 0x11, 0x12, 0x14


def frame(body: bytes, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def nested(depth: int) -> bytes:
    content = b"\x45"
    for _ in range(depth):
        content = b"\xd0" + struct.pack(">II", len(content) + 4, 1) + content
    return content


def opened(properties: bytes = b"\x40") -> bytes:
    """An open frame with these properties, its tenth field."""
    content = b"\xa1\x02me" + b"\x40" * 8 + properties
    size = struct.pack(">II", len(content) + 4, 10)
    return frame(b"\x00\x53\x10\xd0" + size + content)


GARBAGE = {
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an unknown version": b"AMQP\x09\x09\x09\x09",
    "zeros": b"\x00" * 1000,
    "a frame that is too large": AMQP + struct.pack(">IBBH", FRAME_BYTES_MAX + 1, 2, 0, 0),
    "a frame that is too small": AMQP + struct.pack(">IBBH", 3, 2, 0, 0),
    "half a frame": AMQP + frame(section(OPEN, ["me"]))[:-3],
    "a header of a frame beyond its end": AMQP + struct.pack(">IBBH", 8, 200, 0, 0),
    "no performative": AMQP + frame(b"\x40"),
    "an unknown performative": AMQP + opened() + frame(section(0x55, [])),
    "a performative that is no list": AMQP + frame(section(OPEN, "me")),
    "an open without a name": AMQP + frame(section(OPEN, [])),
    "nested properties": AMQP + opened(nested(5000)),
    "a session that was not opened": AMQP + frame(section(BEGIN, [None, 0, 100, 100])),
    "a link without a session": AMQP + opened() + frame(section(ATTACH, ["l", 0, False])),
    "a transfer without a link": AMQP + opened() + frame(section(TRANSFER, [0, 0, b"t", 0])),
    "a second open": AMQP + opened() + opened(),
    "SASL twice": SASL + SASL,
}


@pytest.fixture
def healthy(bus: LocalServiceBus) -> Iterator[LocalServiceBus]:
    """At the end, the bus still serves others, also those who were there before."""
    with connected(bus) as client, client.get_queue_sender("jobs") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        yield bus
        sender.send_messages(ServiceBusMessage("after"))
        with client.get_queue_receiver("jobs") as receiver:
            assert text(receive_one(receiver)) == "before"
            assert text(receive_one(receiver)) == "after"


def say(bus: LocalServiceBus, content: bytes) -> None:
    """Send these bytes, read what comes until the bus closes or says nothing, and go."""
    with closing(socket.create_connection((bus.host, bus.port), timeout=WAIT_SECONDS)) as client:
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_only_the_connection_that_it_came_from(
    healthy: LocalServiceBus, garbage: bytes
) -> None:
    say(healthy, garbage)


def test_random_frames_end_only_their_connection(healthy: LocalServiceBus) -> None:
    seeded = random.Random(8)
    for _ in range(200):
        codes = [seeded.randrange(0x10, 0x1A) for _ in range(5)]
        fields = [None, 0, 1, b"t", "l", True, 2**32, {"a": 1}, [1]]
        frames = b"".join(
            frame(section(code, seeded.choices(fields, k=seeded.randrange(14))), 0)
            for code in codes
        )
        damaged = bytearray(frames)
        damaged[seeded.randrange(len(damaged))] = seeded.randrange(256)
        say(healthy, AMQP + opened() + bytes(damaged))


def test_a_client_that_vanishes_leaves_its_message_locked_and_it_comes_again(
    bus: LocalServiceBus,
) -> None:
    with connected(bus) as client:
        with client.get_queue_sender("jobs") as sender:
            sender.send_messages(ServiceBusMessage("mine"))
        with client.get_queue_receiver("jobs") as receiver:
            receive_one(receiver)
            bus.cut()
    assert [each.state for each in bus.messages("jobs")] == ["locked"]
    bus.advance(LOCK_SECONDS)
    with connected(bus) as client, client.get_queue_receiver("jobs") as receiver:
        again = receive_one(receiver)
        assert (text(again), again.delivery_count) == ("mine", 1)


def test_a_message_can_be_settled_over_a_new_connection(bus: LocalServiceBus) -> None:
    with (
        ServiceBusClient.from_connection_string(
            bus.connection_string, retry_backoff_factor=0.01
        ) as client,
        client.get_queue_sender("jobs") as sender,
        client.get_queue_receiver("jobs") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("mine"))
        message = receive_one(receiver)
        bus.cut()
        receiver.complete_message(message)  # by its lock token
    assert bus.messages("jobs") == []


def test_a_session_of_a_client_that_vanishes_is_free_at_once(bus: LocalServiceBus) -> None:
    with connected(bus) as client, client.get_queue_sender("sessions") as sender:
        sender.send_messages(ServiceBusMessage("1", session_id="red"))
        with client.get_queue_receiver("sessions", session_id="red") as receiver:
            receive_one(receiver)
            bus.cut()
            with client.get_queue_receiver("sessions", session_id="red") as another:
                assert receive_one(another).delivery_count == 0


def test_a_client_reconnects_after_a_cut(bus: LocalServiceBus) -> None:
    with (
        ServiceBusClient.from_connection_string(bus.connection_string) as client,
        client.get_queue_sender("jobs") as sender,
        client.get_queue_receiver("jobs") as receiver,
    ):
        for number in range(3):
            sender.send_messages(ServiceBusMessage(str(number)))
            message = receive_one(receiver)
            assert text(message) == str(number)
            receiver.complete_message(message)
            bus.cut()


def test_messages_and_their_locks_survive_a_restart_on_the_same_port(bus: LocalServiceBus) -> None:
    port = bus.port
    with connected(bus) as client:
        with client.get_queue_sender("jobs") as sender:
            sender.send_messages([ServiceBusMessage("locked"), ServiceBusMessage("active")])
        with client.get_queue_receiver("jobs") as receiver:
            receive_one(receiver)
            bus.stop()
        assert [each.state for each in bus.messages("jobs")] == ["locked", "active"]
        with pytest.raises(ServiceBusError):
            client.get_queue_sender("jobs").send_messages(ServiceBusMessage("nobody is there"))
    bus.start()
    assert bus.port == port
    with connected(bus) as client, client.get_queue_receiver("jobs") as receiver:
        assert text(receive_one(receiver)) == "active"
        bus.advance(LOCK_SECONDS)
        assert text(receive_one(receiver)) == "locked"


def test_a_port_that_is_taken_is_named_in_the_error(bus: LocalServiceBus) -> None:
    second = LocalServiceBus(queues={"jobs": QueueOptions()}, port=bus.port)
    with pytest.raises(ConfigurationError, match=f"can't listen on 127.0.0.1:{bus.port}"):
        second.start()


@pytest.mark.parametrize(
    "options",
    [
        {"lock_seconds": 0},
        {"lock_seconds": 301},
        {"lock_seconds": float("nan")},
        {"deliveries_max": 0},
        {"message_bytes_max": 0},
        {"message_bytes_max": 2**30},
    ],
)
def test_options_beyond_their_limits_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        QueueOptions(**options)  # type: ignore[arg-type]
