"""The messengers for Azure Service Bus, and their URLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from logging import WARNING
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.domain.limits import BODIES_WAITING_MAX, LOCK_RENEW_SECONDS_MAX
from holdfast.domain.texts import shown, type_name
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.wakeups.broker import BrokerMessenger
from holdfast.wakeups.protocol import (
    Box,
    DeadLetters,
    Heard,
    Hint,
    Kept,
    Listener,
    Look,
    Messenger,
    Wakeup,
)
from holdfast.wakeups.servicebus.broker import ServiceBusBroker, opened, peek_first
from holdfast.wakeups.servicebus.convoy import Convoy
from holdfast.wakeups.servicebus.dead_letters import Received
from holdfast.wakeups.servicebus.escort import EscortBroker
from holdfast.wakeups.servicebus.letters import kept, send_all
from holdfast.wakeups.servicebus.place import place_of, place_of_url

LOCK_RENEW_SECONDS: Final = 45.0
WIND_UP_SECONDS: Final = 2.0
OPTIONS: Final = ("broker_led", "lock_renew_seconds", "emulator")

Compose = Callable[[Hint], bytes | None]


class ServiceBus(BrokerMessenger):
    """Wakes workers through a queue of Azure Service Bus, which must exist.

    `queue` may be part of the connection string, as EntityPath. `compose` writes the body of a
    message: JSON with the member `job_id`, and whatever else there is to say.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        queue: str | None = None,
        queues: Collection[str] | None = None,
        compose: Compose | None = None,
        seam: Seam | None = None,
    ) -> None:
        _check_installed()
        self._own_seam = seam or Seam()
        self._place = place_of(connection_string, queue)
        self._compose = compose
        self._service = self._make_broker()
        super().__init__(self._service, self._own_seam, queues=queues)

    def _make_broker(self) -> ServiceBusBroker:
        return ServiceBusBroker(self._place, self._own_seam)

    @property
    def address(self) -> str:
        return self._place.shown

    def post(self, hints: Sequence[Hint]) -> None:
        super().post(hints if self._compose is None else [*map(self._composed, hints)])

    def _composed(self, hint: Hint) -> Hint:
        """With its body, unless many wait for a broker that is away: the job's id is enough."""
        if hint.body is not None or self._compose is None or self.waiting >= BODIES_WAITING_MAX:
            return hint
        try:
            return hint._replace(body=_checked(self._compose(hint)))
        except Exception as error:  # the job is committed: its id alone has to do
            logs.event(
                WARNING,
                "message_not_composed",
                f"{type_name(error)}: {shown(error, str)}; the message has the job's id alone",
                job_id=hint.job_id,
                messenger=self.name,
            )
            return hint

    async def peek(self, box: Box, limit: int) -> Sequence[Kept]:
        client = self._service.client()
        if box is Box.DEAD:
            receiver = self._service.dead_letters(client)
        else:
            receiver = client.get_queue_receiver(self._place.queue)
        async with opened(receiver):
            return [kept(each, box) for each in await peek_first(receiver, limit)]

    @asynccontextmanager
    async def dead_letters(self, limit: int) -> AsyncIterator[DeadLetters]:
        client = self._service.client()
        receiver = self._service.dead_letters(client)
        sender = client.get_queue_sender(self._place.queue)

        async def send(hints: Sequence[Hint]) -> None:
            await send_all(sender, hints, self._own_seam)

        async with opened(receiver, sender):
            received = Received(receiver, limit, send)
            try:
                yield received
            finally:
                await received.give_back()

    async def send(self, hints: Sequence[Hint]) -> None:
        sender = self._service.client().get_queue_sender(self._place.queue)
        async with opened(sender):
            await send_all(sender, hints, self._own_seam)


class ServiceBusEscort(ServiceBus):
    """Broker-led: each worker claims the job that a message names, holds the message while the job
    runs, and completes it with the job. Its lock is renewed with the job's lease, after
    `lock_renew_seconds` or earlier, if the queue's locks are short."""

    def __init__(
        self,
        connection_string: str,
        *,
        queue: str | None = None,
        queues: Collection[str] | None = None,
        compose: Compose | None = None,
        lock_renew_seconds: float = LOCK_RENEW_SECONDS,
        seam: Seam | None = None,
    ) -> None:
        if not 0 < lock_renew_seconds <= LOCK_RENEW_SECONDS_MAX:
            raise ConfigurationError(
                "the renewal of message locks must be more than 0 and at most"
                f" {LOCK_RENEW_SECONDS_MAX} seconds apart, not {lock_renew_seconds:g}:"
                " no lock lasts longer"
            )
        self._lock_renew_seconds = lock_renew_seconds
        self._ears: dict[_Ear, tuple[asyncio.AbstractEventLoop, Heard]] = {}
        self._listener: Listener | None = None
        super().__init__(connection_string, queue=queue, queues=queues, compose=compose, seam=seam)

    def _make_broker(self) -> ServiceBusBroker:
        self._convoy = Convoy(
            self._own_seam, self._lock_renew_seconds, lambda hint: self.post([hint])
        )
        return EscortBroker(self._place, self._own_seam, self._convoy)

    def attach(self, worker_id: str, look: Look, room: Callable[[], int]) -> None:
        self._convoy.attach(worker_id, look, room)

    def detach(self, worker_id: str) -> None:
        self._convoy.detach(worker_id)

    def started(self, job: Claimed) -> None:
        self._convoy.started(job)

    def renewed(self, leases: Collection[Lease]) -> None:
        self._convoy.renewed(leases)

    def settled(self, job: Claimed, settlement: Settlement) -> None:
        self._convoy.settled(job, settlement)

    def lost(self, job: Claimed) -> None:
        self._convoy.lost(job)

    async def listen(self, heard: Heard) -> Listener:
        """All that listen in this process share one connection, and hear the same: a message is for
        whoever can start its job."""
        ear = _Ear(self)
        self._ears[ear] = (asyncio.get_running_loop(), heard)
        if self._listener is None:
            self._listener = self.listen_on_side(self._pass_on)
        return ear

    async def stop_listening(self, ear: _Ear) -> None:
        self._ears.pop(ear, None)
        if self._ears or self._listener is None:
            return
        listener, self._listener = self._listener, None
        again = await self.run_on_side(self._convoy.wind_up(WIND_UP_SECONDS))
        await listener.close()
        self.post(again)

    def _pass_on(self, wakeup: Wakeup) -> None:
        for loop, heard in [*self._ears.values()]:
            with suppress(RuntimeError):  # the loop was closed without closing the listener
                loop.call_soon_threadsafe(heard, wakeup)


class _Ear:
    def __init__(self, messenger: ServiceBusEscort) -> None:
        self._messenger = messenger

    async def close(self) -> None:
        await self._messenger.stop_listening(self)


def _checked(body: object) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    raise TypeError(f"compose must return bytes or None, not {type_name(body)}")


def _check_installed() -> None:
    if find_spec("azure") is None or find_spec("azure.servicebus") is None:
        raise ConfigurationError("Service Bus needs a package: pip install 'holdfast[servicebus]'")


def make_messenger(url: str, seam: Seam) -> Messenger:
    split = urlsplit(url)
    options = dict(parse_qsl(split.query))
    if unknown := [name for name in options if name not in OPTIONS]:
        raise ConfigurationError(
            f"{unknown[0]!r} is not an option of a Service Bus URL; the options are: "
            + ", ".join(OPTIONS)
        )
    place = place_of_url(split, emulator=_switch(options, "emulator"))
    given: dict[str, Any] = {"queue": place.queue, "seam": seam}
    if not _switch(options, "broker_led"):
        if "lock_renew_seconds" in options:
            raise ConfigurationError(
                "lock_renew_seconds has no effect without broker_led=true: a plain messenger holds"
                " no locks"
            )
        return ServiceBus(place.connection_string, **given)
    if text := options.get("lock_renew_seconds"):
        try:
            given["lock_renew_seconds"] = float(text)
        except ValueError:
            raise ConfigurationError(f"lock_renew_seconds must be a number, not {text!r}") from None
    return ServiceBusEscort(place.connection_string, **given)


def _switch(options: dict[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} must be true or false, not {text!r}")
    return text == "true"
