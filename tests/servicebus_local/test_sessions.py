"""Queues with sessions: order, locks, state, and who gets which."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from holdfast.servicebus_local import LocalServiceBus
from tests.servicebus_local.conftest import LOCK_SECONDS
from tests.support.servicebus import assert_nothing, receive, receive_one, text, texts


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    with client.get_queue_sender("sessions") as sender:
        yield sender


def accept(client: ServiceBusClient, session_id: str) -> ServiceBusReceiver:
    return client.get_queue_receiver("sessions", session_id=session_id)


def send(sender: ServiceBusSender, session_id: str, *bodies: str) -> None:
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body, session_id=session_id))


def states(bus: LocalServiceBus) -> list[tuple[str, int]]:
    return [(each.state, each.delivery_count) for each in bus.messages("sessions")]


def test_a_receiver_gets_the_messages_of_its_session_in_order(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    for number in range(3):
        send(sender, "red", f"red {number}")
        send(sender, "blue", f"blue {number}")
    with accept(client, "blue") as receiver:
        assert receiver.session.session_id == "blue"
        messages = receive(receiver, 3)
        assert texts(messages) == ["blue 0", "blue 1", "blue 2"]
        assert {message.session_id for message in messages} == {"blue"}
        assert_nothing(receiver)


def test_a_session_has_one_receiver_at_a_time(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    with accept(client, "red") as receiver:
        receive_one(receiver)
        with pytest.raises(SessionCannotBeLockedError):
            accept(client, "red").__enter__()
    with accept(client, "red") as receiver:  # free again
        assert text(receive_one(receiver)) == "1"


def test_messages_of_a_closed_receiver_come_again_and_count_no_delivery(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1", "2")
    with accept(client, "red") as receiver:
        receiver.complete_message(receive_one(receiver))
        assert text(receive_one(receiver)) == "2"
        assert states(bus) == [("locked", 0)]
    assert states(bus) == [("active", 0)]


def test_the_next_session_is_the_one_whose_message_waited_longest(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    send(sender, "blue", "2")
    with (
        client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as first,
        client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as second,
    ):
        assert (first.session.session_id, second.session.session_id) == ("red", "blue")
        assert (text(receive_one(first)), text(receive_one(second))) == ("1", "2")


def test_waiting_for_a_session_ends_in_time(client: ServiceBusClient) -> None:
    waiting = client.get_queue_receiver(
        "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5
    )
    with pytest.raises(OperationTimeoutError):
        waiting.__enter__()


def test_an_expired_session_lock_fails_its_messages_and_detaches_its_receiver(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    with accept(client, "red") as receiver:
        message = receive_one(receiver)
        bus.advance(LOCK_SECONDS)
        assert states(bus) == [("active", 1)]
        with pytest.raises((SessionLockLostError, ServiceBusError)):
            receiver.complete_message(message)
    with accept(client, "red") as receiver:
        assert receive_one(receiver).delivery_count == 1


def test_a_receiver_that_lost_its_session_gets_no_more_messages(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    with client.get_queue_receiver("sessions", session_id="red", prefetch_count=10) as receiver:
        receive_one(receiver)
        bus.advance(LOCK_SECONDS)
        send(sender, "red", "2")
        assert states(bus) == [("active", 1), ("active", 0)]


def test_a_renewed_session_lock_keeps_its_messages(
    bus: LocalServiceBus, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    with accept(client, "red") as receiver:
        message = receive_one(receiver)
        before = receiver.session.locked_until_utc
        bus.advance(LOCK_SECONDS - 1)
        after = receiver.session.renew_lock()
        assert before is not None
        assert after > before
        bus.advance(LOCK_SECONDS - 1)
        receiver.complete_message(message)
    assert bus.messages("sessions") == []


def test_a_session_keeps_its_state_from_receiver_to_receiver(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    with accept(client, "red") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("step 2")
    with accept(client, "red") as receiver:
        assert receiver.session.get_state() == b"step 2"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_deferred_messages_belong_to_their_session(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    with accept(client, "red") as receiver, accept(client, "blue") as other:
        receiver.defer_message(receive_one(receiver))
        with pytest.raises(ServiceBusError, match="another session"):
            other.receive_deferred_messages(1)
        (again,) = receiver.receive_deferred_messages(1)
        receiver.complete_message(again)
        assert receiver.peek_messages() == []


def test_peek_shows_the_messages_of_the_session_only(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "red", "1")
    send(sender, "blue", "2")
    with accept(client, "blue") as receiver:
        assert texts(receiver.peek_messages(max_message_count=10)) == ["2"]


def test_sessions_with_messages_or_state_are_listed(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    assert list(client.list_queue_sessions("sessions")) == []
    for number in range(120):
        send(sender, f"s{number:03}", "x")
    with accept(client, "with-state") as receiver:
        receiver.session.set_state("x")
    listed = list(client.list_queue_sessions("sessions"))
    assert listed == [*(f"s{number:03}" for number in range(120)), "with-state"]


def test_a_message_without_a_session_is_refused(sender: ServiceBusSender) -> None:
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.send_messages(ServiceBusMessage("x"))


def test_receivers_fit_their_queue(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        client.get_queue_receiver("sessions").__enter__()
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        client.get_queue_receiver("jobs", session_id="red").__enter__()
