"""The bus on its event loop: connections, deliveries to receivers, and what time does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import proton

from holdfast.runtime.seam import Seam
from holdfast.servicebus_local.attach import SessionWait
from holdfast.servicebus_local.cbs import SharedKey
from holdfast.servicebus_local.connection import Connection
from holdfast.servicebus_local.limits import BUS_CONNECTIONS_MAX
from holdfast.servicebus_local.links import Outgoing
from holdfast.servicebus_local.namespace import Namespace
from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.queue import Queue

LOOK_SECONDS_MIN = 0.001  # between two looks at the clock
LOOK_SECONDS_MAX = 1.0

log = logging.getLogger("holdfast.servicebus_local")


class Bus:
    def __init__(self, queues: Mapping[str, QueueOptions], key: SharedKey, seam: Seam) -> None:
        self.namespace = Namespace(queues)
        self.connections: set[Connection] = set()
        self.receivers: list[Outgoing] = []
        self.waits: list[SessionWait] = []
        self._key = key
        self._seam = seam
        self._ahead_ms = 0
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Its life

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; answer on which port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port)
        self._look()
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        closing = [connection.closed for connection in self.connections]
        self.cut()
        await asyncio.gather(*closing)
        if self._server is not None:
            await self._server.wait_closed()
        if self._timer is not None:
            self._timer.cancel()

    def cut(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _accept(self) -> asyncio.Protocol:
        if len(self.connections) >= BUS_CONNECTIONS_MAX:
            return _Refusal()
        return Connection(self)

    # Time

    def now_ms(self) -> int:
        return round(self._seam.now().timestamp() * 1000) + self._ahead_ms

    def move_ahead(self, seconds: float) -> None:
        """Let this much time pass now."""
        self._ahead_ms += round(seconds * 1000)
        self.advance()
        self.flush()

    def advance(self) -> None:
        """Do what is due."""
        now_ms = self.now_ms()
        for queue in self.namespace:
            if queue.advance(now_ms):
                self._lose_sessions()
                self.changed(queue)
                if queue.dead_letters is not None:
                    self.changed(queue.dead_letters)
        for wait in [wait for wait in self.waits if wait.until_ms <= now_ms]:
            self.waits.remove(wait)
            wait.time_out()

    def _look(self) -> None:
        try:
            self.advance()
            for connection in list(self.connections):
                connection.tick(self._seam.monotonic())
        finally:
            self.flush()

    def _arm(self) -> None:
        """Look again when something is due, and now and then because clients want heartbeats."""
        times = [wait.until_ms for wait in self.waits]
        next_ms = self.namespace.next_ms()
        if next_ms is not None:
            times.append(next_ms)
        left_seconds = (min(times) - self.now_ms()) / 1000 if times else LOOK_SECONDS_MAX
        seconds = min(max(left_seconds, LOOK_SECONDS_MIN), LOOK_SECONDS_MAX)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _lose_sessions(self) -> None:
        for receiver in list(self.receivers):
            if receiver.session is not None and receiver.session.is_lost:
                receiver.lose_session()

    # What links ask for

    def check_token(self, token: str) -> str:
        """The path that the token is for. Its time is that of the client's clock."""
        return self._key.check(token, self._seam.now().timestamp())

    def forget_wait(self, link: proton.Link) -> None:
        self.waits = [wait for wait in self.waits if wait.link != link]

    def changed(self, queue: Queue) -> None:
        """Messages or credit may have come: deliver what can be delivered."""
        self._open_sessions(queue)
        receivers = [each for each in self.receivers if each.queue is queue]
        sending = receivers
        while sending:  # one message at a time, so that all get some
            sending = [each for each in sending if self._send_one(each)]
        for receiver in receivers:
            receiver.drain()

    def _send_one(self, receiver: Outgoing) -> bool:
        """An error ends this receiver, and not those that share its queue."""
        try:
            return receiver.send_one()
        except Exception:
            log.exception("a receiver failed")
            receiver.fail()
            return False

    def flush(self) -> None:
        """Write what there is to say, to every client."""
        for connection in list(self.connections):
            connection.flush()
        self._arm()

    def _open_sessions(self, queue: Queue) -> None:
        for wait in [wait for wait in self.waits if wait.queue is queue]:
            session_id = queue.next_session()
            if session_id is None:
                break
            self.waits.remove(wait)
            wait.accept(session_id)


class _Refusal(asyncio.Protocol):
    """Too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
