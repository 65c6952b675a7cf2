"""A messenger on a broker: what RabbitMQ, Azure Service Bus and others have in common.

It has a thread with an event loop of its own, so that neither an enqueue nor a handler ever waits
for the broker. Sending and receiving use separate connections: a broker that stops one, for example
because its disk is full, doesn't stop the other. A lost connection is logged once, and made again
with a growing delay.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from logging import INFO, WARNING
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.domain.limits import HINTS_AT_ONCE_MAX, HINTS_WAITING_MAX
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.secrets import masked
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.runtime.seam import Seam, SideLoop
from holdfast.wakeups.protocol import Heard, Hint, Listener, Wakeup

T = TypeVar("T")

BACKOFF_SECONDS = 0.2, 10.0
CONNECT_SECONDS_MAX = 10.0
SEND_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 1.0
DISCONNECT_SECONDS_MAX = 3.0


class Outgoing(NamedTuple):
    """A connection for sending. `send` returns when the broker has confirmed the hints; `lost`
    ends or raises when the connection does."""

    send: Callable[[Sequence[Hint]], Awaitable[None]]
    lost: Awaitable[None]


def thread_of(broker: Broker) -> str:
    """The name of the thread on which a broker's client runs."""
    return f"holdfast-{broker.name}"


class Broker(Protocol):
    """How to talk to one broker. What these raise is logged, and the connection is made again."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Where it is, without a password."""

    def sending(self) -> AbstractAsyncContextManager[Outgoing]:
        """Connect, and disconnect at the end of the block."""

    def receiving(self, heard: Heard) -> AbstractAsyncContextManager[Awaitable[None]]:
        """Connect, and call `heard` for each message. The block gets an awaitable that ends or
        raises when the connection does."""


class BrokerMessenger:
    """With `queues`, only hints for these queues are sent."""

    def __init__(
        self, broker: Broker, seam: Seam, *, queues: Collection[str] | None = None
    ) -> None:
        self._broker = broker
        self._seam = seam
        self._queues = queues
        self._lock = threading.Lock()  # for starting and stopping
        self._running: _Running | None = None
        outage = _Outage(broker)
        self._sent = _Direction("send", outage, seam)
        self._heard = _Direction("listen", outage, seam)
        self._dropped = 0

    @property
    def name(self) -> str:
        return self._broker.name

    def connect(self) -> None:
        self._start().send()

    def post(self, hints: Sequence[Hint]) -> None:
        wanted = [hint for hint in hints if self._queues is None or hint.queue in self._queues]
        if wanted:
            self._dropped += max(0, len(wanted) - HINTS_AT_ONCE_MAX)
            self._start().send(wanted[:HINTS_AT_ONCE_MAX])

    async def listen(self, heard: Heard) -> Listener:
        loop = asyncio.get_running_loop()

        def pass_on(wakeup: Wakeup) -> None:
            with suppress(RuntimeError):  # the loop was closed without closing the listener
                loop.call_soon_threadsafe(heard, wakeup)

        return self.listen_on_side(pass_on)

    def listen_on_side(self, heard: Heard) -> Listener:
        """Listen, and call `heard` on the messenger's own thread."""

        def hear(wakeup: Wakeup) -> None:
            self._heard.moved(1)
            heard(wakeup)

        return self._start().listen(hear)

    async def run_on_side(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the messenger's own thread, where its connections are."""
        return await asyncio.wrap_future(self._start().loop.submit(work))

    @property
    def waiting(self) -> int:
        """How many hints wait to be sent."""
        return 0 if self._running is None else self._running.waiting

    def status(self) -> MessengerStatus:
        used = [each for each in (self._sent, self._heard) if each.is_used]
        away = [each for each in used if not each.is_live]
        now = self._seam.monotonic()
        return MessengerStatus(
            name=self._broker.name,
            address=self._broker.address,
            live=bool(used) and not away,
            used=bool(used),
            since_seconds=max((now - each.since for each in away or used), default=0.0),
            because=next((each.because for each in away if each.because), None),
            heard_seconds=self._heard.seconds_ago(),
            sent_seconds=self._sent.seconds_ago(),
            heard=self._heard.count,
            sent=self._sent.count,
            dropped=self._dropped + (0 if self._running is None else self._running.dropped),
        )

    async def close(self) -> None:
        with self._lock:
            running = self._running
            if running is None or running.process_id != self._seam.process_id():
                return
            if not running.ears:
                self._running = None
        await asyncio.wrap_future(running.loop.submit(running.flush()))
        if not running.ears:
            await asyncio.wrap_future(running.loop.submit(running.end()))
            running.loop.close()
            self._dropped += running.dropped

    def _start(self) -> _Running:
        """What runs in this process. A forked one has the object, but not its thread."""
        process_id = self._seam.process_id()
        with self._lock:
            if self._running is None or self._running.process_id != process_id:
                self._running = _Running(
                    self._broker, self._seam, process_id, self._sent, self._heard
                )
            return self._running


class _Outage:
    """Says once that the broker is away, and once that it is back: the connection that notices
    first speaks for both, and the one that returns last. One that is older than the outage may
    notice it only after the other has returned."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._away: set[str] = set()
        self._began_at = -math.inf
        self._is_told = False

    def begin(self, verb: str, because: str, connected_at: float, now: float) -> None:
        if not self._away and connected_at > self._began_at:
            self._began_at, self._is_told = now, True
            logs.event(
                WARNING,
                "messenger_lost",
                f"{because}; polling finds new jobs",
                messenger=self._broker.name,
                address=self._broker.address,
                direction=verb,
            )
        self._away.add(verb)

    def end(self, verb: str) -> None:
        if self._away == {verb} and self._is_told:
            self._is_told = False
            logs.event(
                INFO,
                "messenger_restored",
                messenger=self._broker.name,
                address=self._broker.address,
                direction=verb,
            )
        self._away.discard(verb)

    def forget(self, verb: str) -> None:
        self._away.discard(verb)


class _Direction:
    """What is known about sending or receiving. Any thread may read it."""

    def __init__(self, verb: str, outage: _Outage, seam: Seam) -> None:
        self._verb = verb
        self._outage = outage
        self._seam = seam
        self._last: float | None = None
        self.is_used = False
        self.is_live = False
        self.since = 0.0
        self.because: str | None = None
        self.count = 0

    def begin(self) -> None:
        if not self.is_used:
            self.is_used, self.since = True, self._seam.monotonic()

    def up(self) -> None:
        self._outage.end(self._verb)
        self.is_live, self.because, self.since = True, None, self._seam.monotonic()

    def down(self, error: BaseException | None) -> None:
        """Note that the connection is gone."""
        if self.is_live or self.because is None:
            connected_at, self.since = self.since, self._seam.monotonic()
            self.because = _described(error)
            self._outage.begin(self._verb, self.because, connected_at, self.since)
        self.is_live = False

    def end(self) -> None:
        self._outage.forget(self._verb)
        self.is_used = self.is_live = False
        self.because = None

    def moved(self, count: int) -> None:
        self.count += count
        self._last = self._seam.monotonic()

    def seconds_ago(self) -> float | None:
        return None if self._last is None else self._seam.monotonic() - self._last


def _described(error: BaseException | None) -> str:
    if error is None:
        return "the connection was closed"
    if isinstance(error, TimeoutError) and not str(error):
        return "the broker did not answer in time"
    return masked(str(error)) or type(error).__name__


class _Running:
    """The thread of one process, and what it does."""

    def __init__(
        self,
        broker: Broker,
        seam: Seam,
        process_id: int,
        sent: _Direction,
        heard: _Direction,
    ) -> None:
        self._broker = broker
        self._seam = seam
        self._sent = sent
        self._heard = heard
        self._waiting: deque[Hint] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._is_told = False
        self._is_refused = False  # a broker that accepts connections may still refuse hints
        self.process_id = process_id
        self.loop: SideLoop = seam.side_loop(thread_of(broker))
        self.ears: set[_Ear] = set()
        self.dropped = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def send(self, hints: Sequence[Hint] = ()) -> None:
        self._waiting.extend(hints)
        while len(self._waiting) > HINTS_WAITING_MAX:
            with suppress(IndexError):
                self._waiting.popleft()
                self.dropped += 1
        if not self._is_told:  # once per turn of the loop is enough
            self._is_told = True
            self.loop.submit(self._look())

    def listen(self, heard: Heard) -> _Ear:
        ear = _Ear(self)
        self.ears.add(ear)
        self.loop.submit(self._hear(ear, heard))
        return ear

    async def stop_listening(self, ear: _Ear) -> None:
        self.ears.discard(ear)
        if ear.task is not None:
            ear.task.cancel()
            await asyncio.gather(ear.task, return_exceptions=True)

    async def flush(self) -> None:
        """Wait until everything is sent, unless that takes long or can't be done now."""
        if self._sending is not None and self._sent.is_used:
            await is_set_within(self._idle, CLOSE_SECONDS_MAX)

    async def end(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._sent.end()
        self.dropped += len(self._waiting)

    async def _look(self) -> None:
        self._is_told = False
        if self._waiting:
            self._idle.clear()
        self._more.set()
        if self._sending is None:
            self._sent.begin()
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        trouble = Backoff(self._seam, *BACKOFF_SECONDS)
        while True:
            error: Exception | None = None
            try:
                async with _connected(self._broker.sending()) as outgoing:
                    if not self._is_refused:
                        self._sent.up()
                        trouble.reset()
                    await self._send_until(outgoing)
            except Exception as raised:  # whatever a client library raises
                error = raised
            self._sent.down(error)
            if not self._waiting:
                self._idle.set()
            await trouble.wait()

    async def _send_until(self, outgoing: Outgoing) -> None:
        lost = asyncio.ensure_future(outgoing.lost)
        lost.add_done_callback(lambda _: self._more.set())
        try:
            while not lost.done():
                await self._send_waiting(outgoing.send)
                await self._more.wait()
            lost.result()
        finally:
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)

    async def _send_waiting(self, send: Callable[[Sequence[Hint]], Awaitable[None]]) -> None:
        self._more.clear()
        while self._waiting:
            batch: list[Hint] = []
            with suppress(IndexError):  # others drop hints when there are too many
                while len(batch) < HINTS_AT_ONCE_MAX:
                    batch.append(self._waiting.popleft())
            try:
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    await send(batch)
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                self._is_refused = True
                raise
            if self._is_refused:
                self._is_refused = False
                self._sent.up()
            self._sent.moved(len(batch))
        self._idle.set()

    async def _hear(self, ear: _Ear, heard: Heard) -> None:
        ear.task = asyncio.create_task(self._receive(heard))

    async def _receive(self, heard: Heard) -> None:
        self._heard.begin()
        trouble = Backoff(self._seam, *BACKOFF_SECONDS)
        try:
            while True:
                error: Exception | None = None
                try:
                    async with _connected(self._broker.receiving(heard)) as lost:
                        self._heard.up()
                        trouble.reset()
                        heard(Wakeup())  # nobody knows what it missed
                        await lost
                except Exception as raised:  # whatever a client library raises
                    error = raised
                self._heard.down(error)
                await trouble.wait()
        finally:
            self._heard.end()


class _Ear:
    def __init__(self, running: _Running) -> None:
        self._running = running
        self.task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        running = self._running
        await asyncio.wrap_future(running.loop.submit(running.stop_listening(self)))


@asynccontextmanager
async def _connected(connecting: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Connect and disconnect in a bounded time, even if the other end is silent."""
    async with asyncio.timeout(CONNECT_SECONDS_MAX):
        connected = await connecting.__aenter__()
    try:
        yield connected
    finally:
        with suppress(Exception):
            async with asyncio.timeout(DISCONNECT_SECONDS_MAX):
                await connecting.__aexit__(None, None, None)
