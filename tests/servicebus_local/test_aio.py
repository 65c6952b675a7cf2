"""The same bus with Azure's async client, and both kinds of client at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusAuthenticationError

from holdfast.servicebus_local import LocalServiceBus
from tests.servicebus_local.conftest import DELIVERIES_MAX, LOCK_SECONDS
from tests.support.processes import WAIT_SECONDS
from tests.support.servicebus import connected


@pytest.fixture
async def azure(bus: LocalServiceBus) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        bus.connection_string, retry_total=0
    ) as client:
        yield client


async def send(client: ServiceBusClient, *bodies: str, queue: str = "jobs") -> None:
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


async def bodies(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete so many messages."""
    found: list[str] = []
    while len(found) < count:
        messages = await receiver.receive_messages(count - len(found), max_wait_time=WAIT_SECONDS)
        assert messages
        for message in messages:
            found.append(str(message))
            await receiver.complete_message(message)
    return found


async def test_messages_are_sent_received_and_completed(
    bus: LocalServiceBus, azure: ServiceBusClient
) -> None:
    await send(azure, "a", "b")
    async with azure.get_queue_receiver("jobs") as receiver:
        assert await bodies(receiver, 2) == ["a", "b"]
    assert bus.messages("jobs") == []


async def test_locks_are_renewed_and_expire(bus: LocalServiceBus, azure: ServiceBusClient) -> None:
    await send(azure, "slow")
    async with azure.get_queue_receiver("jobs") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        bus.advance(LOCK_SECONDS - 1)
        await receiver.renew_message_lock(message)
        bus.advance(LOCK_SECONDS - 1)
        assert [each.state for each in bus.messages("jobs")] == ["locked"]
        bus.advance(1)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)


async def test_failures_are_abandoned_deferred_and_dead_lettered(
    bus: LocalServiceBus, azure: ServiceBusClient
) -> None:
    await send(azure, "fails", "deferred", "bad")
    async with azure.get_queue_receiver("jobs") as receiver:
        for _ in range(DELIVERIES_MAX):
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
            await receiver.abandon_message(message)
        (deferred,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        await receiver.defer_message(deferred)
        (bad,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        await receiver.dead_letter_message(bad, reason="Bad")
        (again,) = await receiver.receive_deferred_messages(deferred.sequence_number or 0)
        await receiver.complete_message(again)
    assert bus.messages("jobs") == []
    assert [dead.reason for dead in bus.dead_letters("jobs")] == ["MaxDeliveryCountExceeded", "Bad"]


async def test_messages_are_scheduled_and_peeked(
    bus: LocalServiceBus, azure: ServiceBusClient
) -> None:
    async with azure.get_queue_sender("jobs") as sender:
        later = datetime.now(UTC) + timedelta(hours=1)
        numbers = await sender.schedule_messages([ServiceBusMessage("x")] * 2, later)
        await sender.cancel_scheduled_messages(numbers[0])
    async with azure.get_queue_receiver("jobs") as receiver:
        (seen,) = await receiver.peek_messages(max_message_count=10)
        assert seen.sequence_number == numbers[1]
        bus.advance(3601)
        assert await bodies(receiver, 1) == ["x"]


async def test_sessions_are_accepted_by_name_and_in_turn(
    bus: LocalServiceBus, azure: ServiceBusClient
) -> None:
    async with azure.get_queue_sender("sessions") as sender:
        await sender.send_messages(ServiceBusMessage("1", session_id="red"))
        await sender.send_messages(ServiceBusMessage("2", session_id="blue"))
    async with (
        azure.get_queue_receiver("sessions", session_id="red") as red,
        azure.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as following,
    ):
        assert await bodies(red, 1) == ["1"]
        assert following.session.session_id == "blue"
        await following.session.set_state("seen")
        assert await bodies(following, 1) == ["2"]
        assert await following.session.get_state() == b"seen"


async def test_a_receiver_waits_for_a_session_until_one_has_a_message(
    azure: ServiceBusClient,
) -> None:
    receiver = azure.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION)
    waiting = asyncio.create_task(receiver.__aenter__())
    async with azure.get_queue_sender("sessions") as sender:
        await sender.send_messages(ServiceBusMessage("now", session_id="red"))
    async with await waiting:
        assert await bodies(receiver, 1) == ["now"]


async def test_many_receivers_share_a_queue(bus: LocalServiceBus, azure: ServiceBusClient) -> None:
    wanted = [str(number) for number in range(60)]
    await send(azure, *wanted)

    async def work() -> list[str]:
        mode = ServiceBusReceiveMode.PEEK_LOCK
        found = []
        async with azure.get_queue_receiver("jobs", receive_mode=mode) as receiver:
            while bus.messages("jobs"):
                for message in await receiver.receive_messages(5, max_wait_time=0.2):
                    found.append(str(message))
                    await receiver.complete_message(message)
        return found

    shares = await asyncio.gather(*(work() for _ in range(4)))
    assert sorted(chain(*shares), key=int) == wanted


async def test_a_wrong_key_is_unauthorized(bus: LocalServiceBus) -> None:
    wrong = bus.connection_string.replace("no-secret", "another")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("jobs").send_messages(ServiceBusMessage("x"))


async def test_sync_and_async_clients_meet(bus: LocalServiceBus, azure: ServiceBusClient) -> None:
    with connected(bus) as client, client.get_queue_sender("jobs") as sender:
        sender.send_messages(ServiceBusMessage("from a thread"))
    async with azure.get_queue_receiver("jobs") as receiver:
        assert await bodies(receiver, 1) == ["from a thread"]
