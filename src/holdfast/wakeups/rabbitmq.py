"""Wake-ups through RabbitMQ: `amqp://user:password@host/vhost?exchange=orders&queue=printers`

Each due job is a message `{"job_id": "..."}`, with its queue in the header `x-holdfast-queue`.
Workers that share a RabbitMQ queue take turns: one message wakes one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from uuid import UUID

import msgspec

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.secrets import shown_url
from holdfast.runtime.seam import Seam
from holdfast.wakeups.broker import BrokerMessenger, Outgoing
from holdfast.wakeups.protocol import Heard, Hint, Messenger, Wakeup

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

QUEUE_HEADER: Final = "x-holdfast-queue"
BODY_BYTES_MAX: Final = 4096
PREFETCH: Final = 100
HEARTBEAT_SECONDS: Final = 10
OPTIONS: Final = ("exchange", "routing_key", "queue")


class RabbitMQ(BrokerMessenger):
    """Declares a durable direct exchange and a durable queue that is bound to it."""

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "holdfast",
        routing_key: str = "jobs",
        queue: str = "holdfast.jobs",
        queues: Collection[str] | None = None,
        seam: Seam | None = None,
    ) -> None:
        broker = _RabbitBroker(url, exchange, routing_key, queue)
        super().__init__(broker, seam or Seam(), queues=queues)


def make_messenger(url: str, seam: Seam) -> Messenger:
    split = urlsplit(url)
    options = dict(parse_qsl(split.query))
    if unknown := [name for name in options if name not in OPTIONS]:
        raise ConfigurationError(
            f"{unknown[0]!r} is not an option of a RabbitMQ URL; the options are: "
            + ", ".join(OPTIONS)
        )
    return RabbitMQ(urlunsplit(split._replace(query="")), **options, seam=seam)


class _RabbitBroker:
    name = "rabbitmq"

    def __init__(self, url: str, exchange: str, routing_key: str, queue: str) -> None:
        self.address = shown_url(url)
        self._url = url
        self._exchange = exchange
        self._routing_key = routing_key
        self._queue = queue

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Outgoing]:
        from aio_pika import Message

        async with self._connected() as (connection, lost):
            channel = await connection.channel(publisher_confirms=True)
            exchange = await channel.declare_exchange(self._exchange, durable=True)

            async def send(hints: Sequence[Hint]) -> None:
                due = [hint for hint in hints if not hint.delay_seconds]
                messages = [
                    Message(
                        msgspec.json.encode({"job_id": hint.job_id}),
                        content_type="application/json",
                        headers={QUEUE_HEADER: hint.queue},
                    )
                    for hint in due
                ]
                await asyncio.gather(
                    *(exchange.publish(message, self._routing_key) for message in messages)
                )

            yield Outgoing(send, lost)

    @asynccontextmanager
    async def receiving(self, heard: Heard) -> AsyncIterator[Awaitable[None]]:
        async with self._connected() as (connection, lost):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            exchange = await channel.declare_exchange(self._exchange, durable=True)
            queue = await channel.declare_queue(self._queue, durable=True)
            await queue.bind(exchange, self._routing_key)

            async def receive(message: AbstractIncomingMessage) -> None:
                await message.ack()
                if (wakeup := read(message.body, message.headers)) is not None:
                    heard(wakeup)

            await queue.consume(receive)
            yield lost

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[AbstractConnection, Awaitable[None]]]:
        from aio_pika import connect

        connection = await connect(self._url, heartbeat=HEARTBEAT_SECONDS)
        try:
            yield connection, _until_closed(connection)
        finally:
            with suppress(Exception):
                await connection.close()


async def _until_closed(connection: AbstractConnection) -> None:
    closed = asyncio.Event()
    connection.close_callbacks.add(lambda *_: closed.set())
    await closed.wait()


def read(body: bytes, headers: Any) -> Wakeup | None:
    """Read a message; None if it names no job."""
    if len(body) > BODY_BYTES_MAX:
        return None
    with suppress(msgspec.DecodeError, msgspec.ValidationError, ValueError, TypeError, KeyError):
        job_id = UUID(msgspec.json.decode(body)["job_id"])
        queue = (headers or {}).get(QUEUE_HEADER)
        return Wakeup(queue=queue if isinstance(queue, str) else None, job_id=job_id)
    return None
