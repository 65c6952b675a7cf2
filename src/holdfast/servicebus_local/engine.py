"""The AMQP state machine of one connection: bytes in, events and bytes out.

Proton's own event loop is not used: it waits with `select`, which fails beyond 1,024 files, and an
error in a handler ends it for every connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import proton

from holdfast.servicebus_local.limits import FRAME_BYTES_MAX, IDLE_SECONDS_MAX

CONTAINER = "holdfast-servicebus-local"


class Engine:
    def __init__(self) -> None:
        self.transport = proton.Transport(proton.Transport.SERVER)
        self.transport.max_frame_size = FRAME_BYTES_MAX
        self.transport.idle_timeout = IDLE_SECONDS_MAX
        self.transport.sasl().allowed_mechs("ANONYMOUS EXTERNAL")
        self.connection = proton.Connection()
        self.connection.container = CONTAINER
        self._collector = proton._events.Collector()
        self.connection.collect(self._collector)
        self.transport.bind(self.connection)

    def push(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            space = self.transport.capacity()
            if space <= 0:  # the connection is closed, or failed
                return
            self.transport.push(bytes(view[:space]))
            view = view[space:]

    def close_input(self) -> None:
        if self.transport.capacity() >= 0:
            self.transport.close_tail()

    def tick(self, now_seconds: float) -> None:
        """Send a heartbeat if the client wants one, or notice that it sent none."""
        self.transport.tick(now_seconds)

    def events(self) -> Iterator[proton.Event]:
        while event := self._collector.peek():
            yield event
            self._collector.pop()

    def output(self) -> bytes | None:
        """What is to be sent now; None after the last byte."""
        pending = self.transport.pending()
        if pending < 0:
            return None
        content = bytes(self.transport.peek(pending) or b"") if pending else b""
        self.transport.pop(len(content))
        return content

    def fail(self, condition: proton.Condition) -> None:
        self.connection.condition = condition
        self.connection.close()

    def release(self) -> None:
        """Break the cycles between the engine's parts, in C, so that they are freed."""
        self.transport.unbind()
        self.connection.free()
        self._collector.release()
