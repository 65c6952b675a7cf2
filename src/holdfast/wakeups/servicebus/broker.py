"""Connections to Service Bus, over the unmodified client of Azure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.runtime.seam import Seam
from holdfast.wakeups.broker import Outgoing, thread_of
from holdfast.wakeups.clients import log_aside
from holdfast.wakeups.protocol import Heard, Hint
from holdfast.wakeups.servicebus.letters import read, send_all
from holdfast.wakeups.servicebus.place import Place

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

PREFETCH: Final = 100
CHECK_SECONDS: Final = 5.0
PEEK_MAX: Final = 100  # messages in one answer
LOGIN_FAILED: Final = "CBS Token authentication failed"
STUMBLED: Final = "Handler failed"
BEYOND: Final = 2**62  # a number that no message has


class ServiceBusBroker:
    """Takes each message off the queue as it arrives."""

    name = "servicebus"

    def __init__(self, place: Place, seam: Seam) -> None:
        self.address = place.shown
        self._place = place
        self._seam = seam

    def client(self) -> ServiceBusClient:
        from azure.servicebus.aio import ServiceBusClient

        log_aside("azure.servicebus", thread_of(self))
        # Whoever calls tries again, and says so: the client would do it in silence.
        return ServiceBusClient.from_connection_string(self._place.connection_string, retry_total=0)

    def dead_letters(self, client: ServiceBusClient) -> ServiceBusReceiver:
        from azure.servicebus import ServiceBusSubQueue

        return client.get_queue_receiver(
            self._place.queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Outgoing]:
        from azure.servicebus.exceptions import ServiceBusError

        client = self.client()
        sender = client.get_queue_sender(self._place.queue)
        # It receives nothing. It is there to ask whether the broker and the queue are.
        pulse = self.dead_letters(client)
        async with opened(sender, pulse):

            async def send(hints: Sequence[Hint]) -> None:
                try:
                    await send_all(sender, hints, self._seam)
                except ServiceBusError:  # the service detaches a sender that was idle for long
                    await send_all(sender, hints, self._seam)

            async def watch() -> None:
                while True:
                    await asyncio.sleep(CHECK_SECONDS)
                    await ask(pulse)

            async with until_first(watch()) as lost:
                yield Outgoing(send, lost)

    @asynccontextmanager
    async def receiving(self, heard: Heard) -> AsyncIterator[Awaitable[None]]:
        from azure.servicebus import ServiceBusReceiveMode

        receiver = self.client().get_queue_receiver(
            self._place.queue,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            prefetch_count=PREFETCH,
            max_wait_time=CHECK_SECONDS,
        )
        async with opened(receiver):

            async def receive() -> None:
                while True:
                    async for message in receiver:
                        if (letter := read(message)) is not None:
                            heard(letter.wakeup)
                    # Only when nothing comes: it takes the client a fifth of a second to notice a
                    # message that comes while it asks.
                    await ask(receiver)

            async with until_first(receive()) as lost:
                yield lost


@asynccontextmanager
async def opened(*ends: Any) -> AsyncIterator[None]:
    """Open senders and receivers side by side, and close them so: each has a connection of its own,
    and takes half a second for either."""
    try:
        openings = (end.__aenter__() for end in ends)
        for result in await asyncio.gather(*openings, return_exceptions=True):
            if isinstance(result, BaseException):
                raise explained(result)
        yield
    finally:
        closing = asyncio.gather(*(end.close() for end in ends), return_exceptions=True)
        await asyncio.shield(closing)


def explained(error: BaseException) -> BaseException:
    """Say why a login failed, or that there is no such queue: the client hides that inside. When a
    connection breaks, it may stumble over its own remains."""
    if str(error).startswith(STUMBLED):
        return ConnectionError("the connection broke")
    inner = str(getattr(error, "inner_exception", ""))
    if not inner.startswith(LOGIN_FAILED):
        return error
    return ConnectionError("; ".join(inner.splitlines()))


@asynccontextmanager
async def until_first(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[Awaitable[None]]:
    """Run what a connection does. The block gets an awaitable that ends or raises with the first
    that does."""
    tasks = {asyncio.create_task(part) for part in parts}

    async def first() -> None:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None:
                raise explained(error)

    waiting = asyncio.create_task(first())
    try:
        yield waiting
    finally:
        for task in (waiting, *tasks):
            task.cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)


async def ask(receiver: ServiceBusReceiver) -> None:
    """Ask for a message that doesn't exist: nobody says that the queue was deleted, or that the
    other end is gone."""
    await peek(receiver, BEYOND, 1)


async def peek(receiver: ServiceBusReceiver, number: int, count: int) -> Sequence[Any]:
    """Look at messages from this number on, in a bounded time."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await receiver.peek_messages(
                count, sequence_number=number, timeout=CHECK_SECONDS
            )
    except TimeoutError:
        raise TimeoutError(f"Service Bus didn't answer for {CHECK_SECONDS:g} s") from None


async def peek_first(receiver: ServiceBusReceiver, most: int) -> list[Any]:
    """Look at the first messages. The broker may answer with fewer than it has."""
    found: list[Any] = []
    number = 0
    while len(found) < most:
        page = await peek(receiver, number + 1, min(PEEK_MAX, most - len(found)))
        if not page:
            break
        found += page
        number = max(each.sequence_number or 0 for each in page)
    return found
