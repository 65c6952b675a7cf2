"""Wake-ups through RabbitMQ: `amqp://user:password@host/vhost?exchange=orders&queue=printers`

Each due job is a message `{"job_id": "..."}`, with its queue in the header `x-holdfast-queue`.
Workers that share a RabbitMQ queue take turns: one message wakes one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from uuid import UUID

import msgspec

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.secrets import shown_url
from holdfast.runtime.backoff import is_set_within
from holdfast.runtime.seam import Seam
from holdfast.wakeups.broker import BrokerMessenger, Outgoing, thread_of
from holdfast.wakeups.clients import log_aside
from holdfast.wakeups.protocol import Heard, Hint, Messenger, Wakeup

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
    from aio_pika.connection import Connection

QUEUE_HEADER: Final = "x-holdfast-queue"
BODY_BYTES_MAX: Final = 4096
PREFETCH: Final = 100
HEARTBEAT_SECONDS: Final = 10
CHECK_SECONDS: Final = 5.0
SEND_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 0.5
SCHEMES: Final = ("amqp", "amqps")
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
        _check(url)
        broker = _RabbitBroker(url, exchange, routing_key, queue)
        super().__init__(broker, seam or Seam(), queues=queues)


def _check(url: str) -> None:
    try:
        split = urlsplit(url)
        is_valid = split.scheme in SCHEMES and bool(split.hostname) and split.port != 0
    except ValueError:  # whose text may quote a password with an unescaped slash
        is_valid = False
    if not is_valid:
        raise ConfigurationError(
            "a RabbitMQ URL looks like amqp://user:password@host:5672/; write special characters"
            " of the password as %40 for @, %2F for / and %3A for :"
        )
    if split.query:  # which may be part of a password with an unescaped question mark
        raise ConfigurationError(
            "options in this RabbitMQ URL have no effect: remove everything from its question mark"
        )


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

        async with self._connected() as connection:
            channel = await connection.channel(publisher_confirms=True)
            exchange = await channel.declare_exchange(self._exchange, durable=True)

            async def check() -> None:
                await channel.declare_exchange(self._exchange, durable=True, passive=True)

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
                sending = (exchange.publish(message, self._routing_key) for message in messages)
                await _bounded(asyncio.gather(*sending), SEND_SECONDS)

            async with _watched(connection, check) as lost:
                yield Outgoing(send, lost)

    @asynccontextmanager
    async def receiving(self, heard: Heard) -> AsyncIterator[Awaitable[None]]:
        async with self._connected() as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            exchange = await channel.declare_exchange(self._exchange, durable=True)
            queue = await channel.declare_queue(self._queue, durable=True)
            await queue.bind(exchange, self._routing_key)

            async def receive(message: AbstractIncomingMessage) -> None:
                await message.ack()
                if (wakeup := read(message.body, message.headers)) is not None:
                    heard(wakeup)

            async def check() -> None:
                await channel.declare_queue(self._queue, durable=True, passive=True)

            await queue.consume(receive)
            async with _watched(connection, check) as lost:
                yield lost

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AbstractConnection]:
        from aio_pika.connection import make_url

        for package in ("aiormq", "aio_pika"):
            log_aside(package, thread_of(self))
        url = make_url(f"{self._url}?heartbeat={HEARTBEAT_SECONDS}")
        connection = _connection_class()(url)
        try:
            await connection.connect()
            yield connection
        finally:
            with suppress(Exception):
                await _bounded(connection.close(), CLOSE_SECONDS)


@asynccontextmanager
async def _watched(
    connection: AbstractConnection, check: Callable[[], Awaitable[None]]
) -> AsyncIterator[Awaitable[None]]:
    """A task that ends with the connection. It asks now and then whether the exchange or queue is
    still there: nobody says that it was deleted, or that the other end is gone."""
    closed = asyncio.Event()
    connection.close_callbacks.add(lambda *_: closed.set())

    async def watch() -> None:
        while not await is_set_within(closed, CHECK_SECONDS):
            await _bounded(check(), CHECK_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@cache
def _connection_class() -> type[Connection]:
    from aio_pika.connection import Connection

    class ClosedByUs(Connection):
        def __del__(self) -> None:
            """The client's own would close what never opened, on whatever thread the garbage
            collector runs."""

    return ClosedByUs


async def _bounded(work: Awaitable[Any], seconds: float) -> None:
    """Wait no longer than this. The client, when it is canceled, may wait for the broker."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"RabbitMQ didn't answer for {seconds:g} s")
    task.result()


class _Body(msgspec.Struct):
    job_id: UUID


def read(body: bytes, headers: Any) -> Wakeup | None:
    """Read a message; None if it names no job."""
    if len(body) > BODY_BYTES_MAX:
        return None
    try:
        job_id = msgspec.json.decode(body, type=_Body).job_id
    except (msgspec.DecodeError, RecursionError):
        return None
    queue = (headers or {}).get(QUEUE_HEADER)
    return Wakeup(queue=queue if isinstance(queue, str) else None, job_id=job_id)
