"""What the bus refuses, and the error that Azure's client makes of it."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from holdfast.servicebus_local import LocalServiceBus
from holdfast.servicebus_local.limits import QUEUE_BYTES_MAX
from tests.servicebus_local.signatures import signed
from tests.support.servicebus import connected

WRONG_KEY = "it-is-not-this-one"


def refusal(connection_string: str, queue: str) -> str:
    """What the client says when it is not let in."""
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        receiver = client.get_queue_receiver(queue)
        with pytest.raises(ServiceBusAuthenticationError) as raised:
            receiver.receive_messages()
    return f"{raised.value} {raised.value.inner_exception}"


def with_signature(bus: LocalServiceBus, token: str) -> str:
    return (
        f"Endpoint=sb://{bus.host}:{bus.port};SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true"
    )


def test_a_wrong_key_is_unauthorized_and_stays_out_of_the_error(bus: LocalServiceBus) -> None:
    right = "SharedAccessKey=no-secret"
    wrong = bus.connection_string.replace(right, f"SharedAccessKey={WRONG_KEY}")
    assert wrong != bus.connection_string
    text = refusal(wrong, "jobs")
    assert "401" in text
    assert WRONG_KEY not in text
    assert "no-secret" not in text


def test_a_wrong_name_of_the_key_is_unauthorized(bus: LocalServiceBus) -> None:
    wrong = bus.connection_string.replace("SharedAccessKeyName=local", "SharedAccessKeyName=other")
    assert "401" in refusal(wrong, "jobs")


@pytest.mark.parametrize("queue", ["nowhere", "jobs/part", "jobs/$Transfer/$DeadLetterQueue"])
def test_a_queue_that_was_not_declared_is_not_found(bus: LocalServiceBus, queue: str) -> None:
    text = refusal(bus.connection_string, queue)
    assert "404" in text
    assert f"{queue}' could not be found" in text


def test_a_token_for_one_queue_opens_no_other(bus: LocalServiceBus) -> None:
    token = signed(f"sb://{bus.host}:{bus.port}/expiring", expires_seconds=2**31)
    with_token = with_signature(bus, token)
    assert "401" in refusal(with_token, "jobs")
    with ServiceBusClient.from_connection_string(with_token) as client:
        assert client.get_queue_receiver("expiring").peek_messages() == []


def test_an_expired_token_is_unauthorized(bus: LocalServiceBus) -> None:
    token = signed(f"sb://{bus.host}:{bus.port}/jobs", expires_seconds=1_600_000_000)
    assert "401" in refusal(with_signature(bus, token), "jobs")


def test_a_message_that_is_too_large_is_refused(bus: LocalServiceBus) -> None:
    with connected(bus) as client:
        for queue, most in (("jobs", 256 * 1024), ("small", 1000)):
            sender = client.get_queue_sender(queue)
            sender.send_messages(ServiceBusMessage(b"x" * (most - 300)))
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(ServiceBusMessage(b"x" * most))
            assert len(bus.messages(queue)) == 1


def test_a_client_learns_the_largest_size_of_a_batch(bus: LocalServiceBus) -> None:
    with connected(bus) as client, client.get_queue_sender("small") as sender:
        assert sender.create_message_batch().max_size_in_bytes == 1000


def test_nothing_can_be_sent_to_dead_letters(bus: LocalServiceBus) -> None:
    with (
        connected(bus) as client,
        client.get_queue_sender("jobs/$DeadLetterQueue") as sender,
        pytest.raises(ServiceBusError, match="not-allowed"),
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_queue_that_is_full_says_so(bus: LocalServiceBus) -> None:
    body = b"x" * 200_000
    with connected(bus) as client, client.get_queue_sender("jobs") as sender:
        for _ in range(QUEUE_BYTES_MAX // (len(body) + 1000)):
            sender.send_messages(ServiceBusMessage(body))
        with pytest.raises(ServiceBusQuotaExceededError):
            fill(sender, body)


def fill(sender: ServiceBusSender, body: bytes) -> None:
    for _ in range(10):
        sender.send_messages(ServiceBusMessage(body))
