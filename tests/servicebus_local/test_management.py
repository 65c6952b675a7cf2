"""Peeking, scheduling and deferring: what Azure's client asks of the management node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from holdfast.servicebus_local import LocalServiceBus
from tests.servicebus_local.conftest import LOCK_SECONDS
from tests.support.servicebus import assert_nothing, receive_one, text, texts

SOON = timedelta(minutes=10)


def soon() -> datetime:
    return datetime.now(UTC) + SOON


def test_peek_shows_messages_in_any_state_and_changes_none(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage(name) for name in ("locked", "deferred", "active")])
    (scheduled,) = sender.schedule_messages(ServiceBusMessage("scheduled"), soon())
    with client.get_queue_receiver("jobs") as receiver:
        receive_one(receiver)
        receiver.defer_message(receive_one(receiver))
        before = bus.messages("jobs")
        seen = receiver.peek_messages(max_message_count=10, sequence_number=1)
    assert texts(seen) == ["locked", "deferred", "active", "scheduled"]
    assert [message.sequence_number for message in seen] == [1, 2, 3, scheduled]
    assert [message.state for message in seen] == [
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.DEFERRED,
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.SCHEDULED,
    ]
    assert [each.state for each in before] == ["locked", "deferred", "active", "scheduled"]


def test_peek_continues_after_the_last_one_and_ends(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
    with client.get_queue_receiver("jobs") as receiver:
        assert texts(receiver.peek_messages(max_message_count=3)) == ["0", "1", "2"]
        assert texts(receiver.peek_messages(max_message_count=3)) == ["3", "4"]
        assert receiver.peek_messages(max_message_count=3) == []
        assert receiver.peek_messages(sequence_number=2**62) == []


def test_dead_letters_can_be_peeked(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    sender.send_messages(ServiceBusMessage("dead"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="Because")
    with client.get_queue_receiver("jobs", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (seen,) = receiver.peek_messages(max_message_count=5)
    assert (text(seen), seen.dead_letter_reason) == ("dead", "Because")


def test_a_scheduled_message_becomes_active_on_time(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    (number,) = sender.schedule_messages(ServiceBusMessage("later"), soon())
    with client.get_queue_receiver("jobs") as receiver:
        bus.advance(SOON.total_seconds() - 5)
        assert_nothing(receiver)
        bus.advance(10)
        message = receive_one(receiver)
        assert text(message) == "later"
        assert message.sequence_number is not None
        assert message.sequence_number > number  # a new one, of the time when it became active
        receiver.complete_message(message)


@pytest.mark.parametrize("together", [False, True])
def test_a_time_on_a_sent_message_schedules_it(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender, together: bool
) -> None:
    message = ServiceBusMessage("later", scheduled_enqueue_time_utc=soon())
    sender.send_messages([message] if together else message)
    assert [each.state for each in bus.messages("jobs")] == ["scheduled"]
    bus.advance(SOON.total_seconds() + 1)
    assert [each.state for each in bus.messages("jobs")] == ["active"]
    with client.get_queue_receiver("jobs") as receiver:
        assert text(receive_one(receiver)) == "later"


def test_scheduled_messages_can_be_canceled_once(
    bus: LocalServiceBus, sender: ServiceBusSender
) -> None:
    numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], soon())
    sender.cancel_scheduled_messages(numbers)
    assert bus.messages("jobs") == []
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(numbers)


def test_a_deferred_message_is_received_by_its_number_only(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("when I want it"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.defer_message(receive_one(receiver))
        assert_nothing(receiver)
        (message,) = receiver.receive_deferred_messages(1)
        assert text(message) == "when I want it"
        assert [each.state for each in bus.messages("jobs")] == ["locked"]
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(1)
        receiver.complete_message(message)
    assert bus.messages("jobs") == []


def test_a_deferred_message_stays_deferred_if_it_is_abandoned_or_its_lock_expires(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("deferred"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.defer_message(receive_one(receiver))
        (message,) = receiver.receive_deferred_messages(1)
        receiver.abandon_message(message)
        assert [each.state for each in bus.messages("jobs")] == ["deferred"]
        receiver.receive_deferred_messages(1)
        bus.advance(LOCK_SECONDS)
        assert [(each.state, each.delivery_count) for each in bus.messages("jobs")] == [
            ("deferred", 2)
        ]


def test_a_deferred_message_can_be_renewed_and_dead_lettered(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("deferred"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.defer_message(receive_one(receiver))
        (message,) = receiver.receive_deferred_messages(1)
        receiver.renew_message_lock(message)
        receiver.dead_letter_message(message, reason="Why", error_description="because")
    (dead,) = bus.dead_letters("jobs")
    assert (dead.reason, dead.description) == ("Why", "because")


def test_deferred_messages_can_be_received_and_deleted(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("deferred"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.defer_message(receive_one(receiver))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("jobs", receive_mode=mode) as receiver:
        assert texts(receiver.receive_deferred_messages([1])) == ["deferred"]
    assert bus.messages("jobs") == []


def test_an_unknown_operation_is_refused(client: ServiceBusClient) -> None:
    manager = client.get_queue_receiver("jobs")
    with manager, pytest.raises(ServiceBusError, match="does not support the operation"):
        manager._mgmt_request_response_with_retry(b"com.microsoft:add-rule", {}, _default)


def _default(status: int, message: object, description: object, amqp_transport: object) -> None:
    if status != 200:
        raise ServiceBusError(bytes(description).decode())  # type: ignore[call-overload]
