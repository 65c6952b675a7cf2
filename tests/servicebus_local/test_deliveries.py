"""Messages from Azure's sender to Azure's receiver, and what the receiver does with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError

from holdfast.servicebus_local import LocalServiceBus
from tests.servicebus_local.conftest import DELIVERIES_MAX, LOCK_SECONDS
from tests.support.servicebus import assert_nothing, receive, receive_one, text, texts


def test_a_message_arrives_as_it_was_sent(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sent = ServiceBusMessage(
        b"\x00body\xff",
        message_id="the-id",
        correlation_id="the-cause",
        subject="greeting",
        content_type="application/octet-stream",
        reply_to="answers",
        application_properties={"text": "ä", "number": 7, "true": True, "share": 0.5},
        time_to_live=timedelta(hours=1),
    )
    before = datetime.now(UTC) - timedelta(seconds=1)
    sender.send_messages(sent)
    with client.get_queue_receiver("jobs") as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert b"".join(message.body) == b"\x00body\xff"
    assert message.message_id == "the-id"
    assert message.correlation_id == "the-cause"
    assert message.subject == "greeting"
    assert message.content_type == "application/octet-stream"
    assert message.reply_to == "answers"
    assert message.application_properties == {
        b"text": "ä".encode(), b"number": 7, b"true": True, b"share": 0.5,
    }  # fmt: skip
    assert message.time_to_live == timedelta(hours=1)
    assert message.sequence_number == 1
    assert message.delivery_count == 0
    assert message.enqueued_time_utc is not None
    assert message.enqueued_time_utc >= before


@pytest.mark.parametrize("size", [0, 1, 255, 256, 60_000, 70_000, 250_000])
def test_a_body_of_any_size_arrives_whole(
    client: ServiceBusClient, sender: ServiceBusSender, size: int
) -> None:
    body = bytes(number % 251 for number in range(size))
    sender.send_messages(ServiceBusMessage(body))
    with client.get_queue_receiver("jobs") as receiver:
        assert b"".join(receive_one(receiver).body) == body


def test_a_batch_arrives_as_its_messages_in_order(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    batch = sender.create_message_batch()
    for number in range(100):
        batch.add_message(ServiceBusMessage(str(number), message_id=f"id-{number}"))
    sender.send_messages(batch)
    with client.get_queue_receiver("jobs") as receiver:
        messages = receive(receiver, 100)
    assert texts(messages) == [str(number) for number in range(100)]
    assert [message.message_id for message in messages] == [f"id-{n}" for n in range(100)]


def test_a_body_that_looks_like_a_message_is_no_batch(
    bus: LocalServiceBus, sender: ServiceBusSender
) -> None:
    looks = b"\x00\x53\x75\xa0\x02hi"
    sender.send_messages(ServiceBusMessage(looks))
    assert [message.body for message in bus.messages("jobs")] == [looks]


def test_a_completed_message_is_gone(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("once"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.complete_message(receive_one(receiver))
        assert_nothing(receiver)
    assert bus.messages("jobs") == []
    assert bus.dead_letters("jobs") == []


def test_a_received_message_is_locked_for_the_lock_time(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("mine"))
    before = datetime.now(UTC)
    with client.get_queue_receiver("jobs") as first, client.get_queue_receiver("jobs") as second:
        message = receive_one(first)
        assert [each.state for each in bus.messages("jobs")] == ["locked"]
        assert message.locked_until_utc is not None
        assert message.locked_until_utc >= before + timedelta(seconds=LOCK_SECONDS - 1)
        assert_nothing(second)


def test_an_expired_lock_returns_the_message_as_a_failed_delivery(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("again"))
    with client.get_queue_receiver("jobs") as first, client.get_queue_receiver("jobs") as second:
        message = receive_one(first)
        bus.advance(LOCK_SECONDS - 1)
        assert [each.state for each in bus.messages("jobs")] == ["locked"]
        bus.advance(1)
        again = receive_one(second)
        assert text(again) == "again"
        assert again.delivery_count == 1
        assert again.lock_token != message.lock_token
        with pytest.raises(MessageLockLostError):
            first.complete_message(message)
        second.complete_message(again)
    assert bus.messages("jobs") == []


def test_a_renewed_lock_lasts_longer(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("slow"))
    with client.get_queue_receiver("jobs") as receiver:
        message = receive_one(receiver)
        before = message.locked_until_utc
        assert before is not None
        bus.advance(LOCK_SECONDS - 1)
        assert receiver.renew_message_lock(message) > before + timedelta(seconds=LOCK_SECONDS - 2)
        bus.advance(LOCK_SECONDS - 1)
        receiver.complete_message(message)
    assert bus.messages("jobs") == []


def test_a_lock_that_expired_can_not_be_renewed(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("late"))
    with client.get_queue_receiver("jobs") as receiver:
        message = receive_one(receiver)
        bus.advance(LOCK_SECONDS)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)


def test_an_abandoned_message_comes_again_at_once_in_its_place(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
    with client.get_queue_receiver("jobs") as receiver:
        receiver.abandon_message(receive_one(receiver))
        again = receive_one(receiver)
        assert text(again) == "first"
        assert again.delivery_count == 1


def test_a_message_that_fails_too_often_is_dead_lettered(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("poison", application_properties={"kind": "bad"}))
    with client.get_queue_receiver("jobs") as receiver:
        for count in range(DELIVERIES_MAX):
            message = receive_one(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        assert_nothing(receiver)
    assert bus.messages("jobs") == []
    (dead,) = bus.dead_letters("jobs")
    assert dead.body == b"poison"
    assert dead.reason == "MaxDeliveryCountExceeded"
    assert dead.delivery_count == DELIVERIES_MAX
    assert dead.application_properties["kind"] == "bad"


def test_a_dead_letter_says_why_and_can_be_received(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("bad", message_id="b"))
    with client.get_queue_receiver("jobs") as receiver:
        receiver.dead_letter_message(
            receive_one(receiver), reason="NotJson", error_description="no brace"
        )
    (dead,) = bus.dead_letters("jobs")
    assert (dead.reason, dead.description) == ("NotJson", "no brace")
    with client.get_queue_receiver("jobs", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        for _ in range(DELIVERIES_MAX + 1):  # dead letters have no limit of deliveries
            message = receive_one(receiver)
            receiver.abandon_message(message)
        message = receive_one(receiver)
        assert message.message_id == "b"
        assert message.dead_letter_reason == "NotJson"
        assert message.dead_letter_error_description == "no brace"
        receiver.complete_message(message)
    assert bus.dead_letters("jobs") == []


def test_receive_and_delete_removes_the_message_when_it_is_sent(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b"), ServiceBusMessage("c")])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("jobs", receive_mode=mode, prefetch_count=10) as receiver:
        assert texts(receive(receiver, 3)) == ["a", "b", "c"]
    assert bus.messages("jobs") == []


def test_messages_that_a_closing_receiver_did_not_hand_out_count_no_delivery(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
    with client.get_queue_receiver("jobs", prefetch_count=10) as receiver:
        receiver.complete_message(receive_one(receiver))
    assert [(each.state, each.delivery_count) for each in bus.messages("jobs")] == [
        ("active", 0)
    ] * 4


def test_a_message_stays_locked_after_its_receiver_closed(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("held"))
    with client.get_queue_receiver("jobs") as receiver:
        receive_one(receiver)
    assert [each.state for each in bus.messages("jobs")] == ["locked"]
    bus.advance(LOCK_SECONDS)
    assert [(each.state, each.delivery_count) for each in bus.messages("jobs")] == [("active", 1)]


def test_receivers_share_a_queue_and_no_message_goes_to_two(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(40)])
    with client.get_queue_receiver("jobs") as first, client.get_queue_receiver("jobs") as second:
        got = [*receive(first, 10), *receive(second, 10), *receive(first, 10), *receive(second, 10)]
    assert sorted(texts(got), key=int) == [str(number) for number in range(40)]


def test_a_message_that_lived_too_long_is_dropped_or_dead_lettered(
    bus: LocalServiceBus, client: ServiceBusClient
) -> None:
    for queue in ("jobs", "expiring"):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("old", time_to_live=timedelta(hours=1)))
    bus.advance(3000)
    assert len(bus.messages("jobs")) == len(bus.messages("expiring")) == 1
    bus.advance(600)
    assert bus.messages("jobs") == bus.messages("expiring") == []
    assert bus.dead_letters("jobs") == []
    (dead,) = bus.dead_letters("expiring")
    assert dead.reason == "TTLExpiredException"


def test_a_receiver_that_waits_gets_a_message_when_it_is_sent(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    with client.get_queue_receiver("jobs") as receiver:
        assert_nothing(receiver)
        for number in range(3):
            sender.send_messages(ServiceBusMessage(str(number)))
            message = receive_one(receiver)
            assert text(message) == str(number)
            receiver.complete_message(message)


def test_an_id_that_is_a_uuid_is_kept(bus: LocalServiceBus, sender: ServiceBusSender) -> None:
    wanted = str(uuid4())
    sender.send_messages(ServiceBusMessage("x", message_id=wanted))
    assert [message.message_id for message in bus.messages("jobs")] == [wanted]
