"""One connection of a client. Whatever it sends, the others keep working."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import proton
from proton import Event, EventType

from holdfast.servicebus_local.attach import Client
from holdfast.servicebus_local.engine import Engine
from holdfast.servicebus_local.frames import Splitter
from holdfast.servicebus_local.refusals import Malformed

if TYPE_CHECKING:
    from holdfast.servicebus_local.bus import Bus

log = logging.getLogger("holdfast.servicebus_local")


class Connection(asyncio.Protocol):
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._engine = Engine()
        self._frames = Splitter()
        self._client = Client(bus)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._message_format: int | None = None

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._bus.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._bus.advance()
        with self._alone():
            for frame in self._frames.feed(data):
                self._message_format = frame.message_format
                self._engine.push(frame.content)
                self._handle_events()
        self._bus.flush()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._bus.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._bus.connections.discard(self)
        for link in list(self._client.links):
            self._client.detach(link)
        self._engine.release()
        self.closed.set_result(None)
        self._bus.flush()

    # What the bus calls

    def abort(self) -> None:
        """Cut the connection, without a word."""
        if self._transport is not None:
            self._transport.abort()

    def tick(self, now_seconds: float) -> None:
        if self._transport is not None:
            self._engine.tick(now_seconds)

    def flush(self) -> None:
        """Write what the engine has to say, as fast as the client reads it."""
        with self._alone():
            self._write()

    def _write(self) -> None:
        while self._transport is not None and not self._is_full:
            content = self._engine.output()
            if content is None:
                self._transport.close()
                return
            if content:
                self._transport.write(content)
                self._handle_events()
            elif not self._client.resume():
                return

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """An error ends this connection, and no other."""
        try:
            yield
        except Malformed as malformed:
            log.warning("a client sent %s", malformed)
            self.abort()
        except Exception:
            log.exception("a connection failed")
            self.abort()

    # What the engine tells

    def _handle_events(self) -> None:
        for event in self._engine.events():
            handler = HANDLERS.get(event.type)
            if handler is not None:
                handler(self, event.context)

    def _on_open(self, opened: proton.Connection | proton.Session) -> None:
        opened.open()

    def _on_close(self, connection: proton.Connection) -> None:
        connection.close()

    def _on_session_close(self, session: proton.Session) -> None:
        for link in [link for link in self._client.links if link.session == session]:
            self._client.detach(link)
        session.close()

    def _on_link_open(self, link: proton.Link) -> None:
        self._client.attach(link)

    def _on_link_close(self, link: proton.Link) -> None:
        self._client.detach(link)
        link.close()
        link.free()

    def _on_link_flow(self, link: proton.Link) -> None:
        endpoint = self._client.links.get(link)
        if endpoint is not None:
            endpoint.on_flow()

    def _on_delivery(self, delivery: proton.Delivery) -> None:
        endpoint = self._client.links.get(delivery.link)
        if endpoint is not None:
            endpoint.on_delivery(delivery, self._message_format)


HANDLERS: dict[EventType, Callable[[Connection, Any], None]] = {
    Event.CONNECTION_REMOTE_OPEN: Connection._on_open,
    Event.CONNECTION_REMOTE_CLOSE: Connection._on_close,
    Event.SESSION_REMOTE_OPEN: Connection._on_open,
    Event.SESSION_REMOTE_CLOSE: Connection._on_session_close,
    Event.LINK_REMOTE_OPEN: Connection._on_link_open,
    Event.LINK_REMOTE_CLOSE: Connection._on_link_close,
    Event.LINK_REMOTE_DETACH: Connection._on_link_close,
    Event.LINK_FLOW: Connection._on_link_flow,
    Event.DELIVERY: Connection._on_delivery,
}
