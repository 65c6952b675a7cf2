"""The bus in a thread of its own, for tests and for development."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from uuid import UUID

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.seam import Seam, SideLoop
from holdfast.servicebus_local.bus import Bus
from holdfast.servicebus_local.cbs import SharedKey
from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.queue import DESCRIPTION, REASON, Entry, Queue, State

# Known to everybody: the bus is for one machine, and keeps no secrets.
KEY = SharedKey("local", "no-secret")

T = TypeVar("T")


@dataclass(frozen=True)
class StoredMessage:
    """A message as it was when somebody looked."""

    message_id: str | UUID | int | bytes | None
    body: bytes
    sequence_number: int
    delivery_count: int
    state: State
    session_id: str | None
    application_properties: Mapping[str, Any]


@dataclass(frozen=True)
class DeadLetter(StoredMessage):
    """The same of a dead letter, with why it is one."""

    reason: str | None
    description: str | None


class LocalServiceBus:
    """An Azure Service Bus for development and tests, with its queues in memory.

    Use it with `with`, or call `start` and `stop`. `host` and `port` say where it listens: port 0
    picks a free one at the first start, and keeps it.
    """

    def __init__(
        self,
        *,
        queues: Mapping[str, QueueOptions],
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.host = host
        self.port = port
        self._seam = Seam()
        self._bus = Bus(queues, KEY, self._seam)
        self._loop: SideLoop | None = None

    @property
    def connection_string(self) -> str:
        """What Azure's clients take to connect."""
        return (
            f"Endpoint=sb://{self.host}:{self.port};SharedAccessKeyName={KEY.name};"
            f"SharedAccessKey={KEY.key};UseDevelopmentEmulator=true;"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Accept connections. Messages from before a stop are still there."""
        loop = self._seam.side_loop("holdfast-servicebus")
        try:
            self.port = loop.submit(self._bus.listen(self.host, self.port)).result()
        except OSError as error:
            loop.close()
            raise ConfigurationError(
                f"can't listen on {self.host}:{self.port}: {error.strerror or error};"
                " stop the other program, or choose another port"
            ) from error
        self._loop = loop

    def stop(self) -> None:
        """Cut every connection and close the port, as a crash would."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.submit(self._bus.close()).result()
            loop.close()

    def cut(self) -> None:
        """Cut every connection."""
        self._run(self._bus.cut)

    def advance(self, seconds: float) -> None:
        """Let time pass for the bus: locks and messages expire, scheduled messages become active.
        The clocks of its clients stay as they are."""
        self._run(lambda: self._bus.move_ahead(seconds))

    def messages(self, queue: str) -> list[StoredMessage]:
        """All messages of a queue, in the order of their numbers."""
        return self._look_at(self._bus.namespace.find(queue), _stored)

    def dead_letters(self, queue: str) -> list[DeadLetter]:
        """All dead letters of a queue, in the order of their numbers."""
        found = self._bus.namespace.find(queue).dead_letters
        assert found is not None
        return self._look_at(found, _dead)

    def _look_at(self, queue: Queue, read: Callable[[Entry], T]) -> list[T]:
        def look() -> list[T]:
            self._bus.advance()
            return [read(queue.entries[number]) for number in sorted(queue.entries)]

        return self._run(look)

    def _run(self, call: Callable[[], T]) -> T:
        """Call it on the event loop, or here if that is stopped."""

        async def calling() -> T:
            return call()

        return call() if self._loop is None else self._loop.submit(calling()).result()


def _stored(entry: Entry) -> StoredMessage:
    return StoredMessage(**_fields(entry))


def _dead(entry: Entry) -> DeadLetter:
    fields = _fields(entry)
    properties = fields["application_properties"]
    return DeadLetter(
        **fields, reason=properties.get(REASON), description=properties.get(DESCRIPTION)
    )


def _fields(entry: Entry) -> dict[str, Any]:
    return {
        "message_id": entry.message.message_id,
        "body": entry.message.data,
        "sequence_number": entry.sequence_number,
        "delivery_count": entry.delivery_count,
        "state": entry.state,
        "session_id": entry.session_id,
        "application_properties": entry.message.application_properties,
    }
