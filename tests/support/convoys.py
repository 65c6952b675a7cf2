"""A local Service Bus and workers in broker-led mode. Their database wakes nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusReceiver

from holdfast import Holdfast, JobFunction, Retry
from holdfast.messengers import ServiceBusEscort
from holdfast.servicebus_local import LocalServiceBus, QueueOptions
from holdfast.servicebus_local.server import KEY, StoredMessage
from holdfast.testing.messengers import Faults, Wiring
from tests.support.processes import wait_until
from tests.support.running import QUICK
from tests.support.servicebus import StartBus, connected

QUEUE = "jobs"
NEVER_SECONDS = 10_000.0  # polling finds nothing


class Convoys:
    """One queue, one database, and as many apps as a test wants."""

    def __init__(self, url: str, start: StartBus, **options: Any) -> None:
        self.url = url
        self.bus: LocalServiceBus = start({QUEUE: QueueOptions(**options)})
        self.gate = asyncio.Event()
        self.done: list[int] = []
        self.running: set[int] = set()
        self.failures = 0  # how many attempts are still to fail

    def messenger(self, **options: Any) -> ServiceBusEscort:
        return ServiceBusEscort(self.bus.connection_string, queue=QUEUE, **options)

    def app(self, *, escorted: bool = True, **settings: Any) -> App:
        """An app as in another process. Without an escort, it announces nothing."""
        messengers = [self.messenger()] if escorted else []
        wiring = Wiring(self.url, lambda: messengers)
        chosen = {**QUICK, "poll_seconds": NEVER_SECONDS, "renew_seconds": 0.2, **settings}
        return App(wiring.app(Faults(), **chosen), self, messengers)

    @property
    def address(self) -> str:
        """The URL of such a messenger, for another process."""
        key = KEY.key.replace("/", "%2F").replace("+", "%2B").replace("=", "%3D")
        place = f"{self.bus.host}:{self.bus.port}/{QUEUE}"
        return f"servicebus://{KEY.name}:{key}@{place}?emulator=true&broker_led=true"

    @property
    def messages(self) -> list[StoredMessage]:
        return self.bus.messages(QUEUE)

    def send(self, *bodies: bytes | dict[str, Any], **options: Any) -> None:
        """Send messages as a stranger would."""
        with connected(self.bus) as client, client.get_queue_sender(QUEUE) as sender:
            for body in bodies:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                sender.send_messages(ServiceBusMessage(raw, **options))

    def announce(self, *jobs: UUID) -> None:
        self.send(*({"job_id": str(job)} for job in jobs))

    def receiving(self, do: Callable[[ServiceBusReceiver], None]) -> None:
        """Receive as a stranger would."""
        with connected(self.bus) as client, client.get_queue_receiver(QUEUE) as receiver:
            do(receiver)

    async def empties(self) -> None:
        await wait_until(lambda: self.messages == [], lambda: f"empty: {self.messages}")

    async def does(self, *numbers: int) -> None:
        await wait_until(lambda: len(self.done) >= len(numbers), lambda: f"done: {self.done}")
        assert sorted(self.done) == sorted(numbers)

    async def runs(self, *numbers: int) -> None:
        await wait_until(lambda: self.running >= {*numbers}, lambda: f"runs: {self.running}")


class App:
    def __init__(self, hf: Holdfast, convoys: Convoys, messengers: list[ServiceBusEscort]) -> None:
        self.hf = hf
        self._messengers = messengers

        @hf.job(name="quick", retry=Retry.exponential(max_attempts=5, base=1.0, jitter=0))
        async def quick(number: int) -> None:
            if convoys.failures:
                convoys.failures -= 1
                raise ConnectionError("not now")
            convoys.done.append(number)

        @hf.job(name="slow")
        async def slow(number: int) -> None:
            convoys.running.add(number)
            try:
                await convoys.gate.wait()
                convoys.done.append(number)
            finally:
                convoys.running.discard(number)

        self.quick: JobFunction[[int], None] = quick
        self.slow: JobFunction[[int], None] = slow

    @property
    def messenger(self) -> ServiceBusEscort:
        return self._messengers[0]

    async def is_live(self) -> None:
        status = self.messenger.status
        await wait_until(lambda: status().live and status().heard, lambda: f"live: {status()}")
