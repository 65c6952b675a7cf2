"""What happens when a client attaches a link: which node is meant, may the client use it, and what
is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import proton

from holdfast.servicebus_local import management
from holdfast.servicebus_local.cbs import covers
from holdfast.servicebus_local.codec import Int
from holdfast.servicebus_local.limits import LINKS_MAX, MESSAGE_BYTES_MAX, SESSION_WAIT_SECONDS
from holdfast.servicebus_local.links import (
    SESSION_FILTER,
    Endpoint,
    HeldSession,
    Incoming,
    Outgoing,
    Replies,
    refuse,
)
from holdfast.servicebus_local.message import BATCH_FORMAT, parse, split
from holdfast.servicebus_local.namespace import CBS, MANAGEMENT, path_of
from holdfast.servicebus_local.queue import Queue
from holdfast.servicebus_local.refusals import (
    ArgumentError,
    EntityNotFound,
    NotAllowed,
    QuotaExceeded,
    Refused,
    TimedOut,
    Unauthorized,
    Unsupported,
)
from holdfast.servicebus_local.requests import Request

if TYPE_CHECKING:
    from holdfast.servicebus_local.bus import Bus

Answer: TypeAlias = Callable[[Request], bytes]

WAIT = "com.microsoft:timeout"


@dataclass(eq=False)
class Client:
    """The links of a connection, and what it may do."""

    bus: Bus
    claims: set[str] = field(default_factory=set)
    # None: refused, or waits for a session.
    links: dict[proton.Link, Endpoint | None] = field(default_factory=dict)

    def attach(self, link: proton.Link) -> None:
        """Open the link, refuse it, or let it wait for a session."""
        try:
            if len(self.links) >= LINKS_MAX:
                raise QuotaExceeded("The connection has too many links.")
            self.links[link] = None
            self.links[link] = self._attach(link)
        except Refused as refused:
            refuse(link, refused)

    def detach(self, link: proton.Link) -> None:
        endpoint = self.links.pop(link, None)
        self.bus.forget_wait(link)
        if endpoint is not None:
            endpoint.on_closed()

    def resume(self) -> bool:
        """Deliver to receivers that were held back; answer whether one had room for more."""
        waiting = [
            each for each in self.links.values() if isinstance(each, Outgoing) and each.is_held_back
        ]
        for receiver in waiting:
            receiver.on_flow()
        return any(not each.is_held_back for each in waiting)

    def _attach(self, link: proton.Link) -> Endpoint | None:
        if link.remote_target.type == proton.Terminus.COORDINATOR:
            raise Unsupported("This server does not support transactions.")
        address = (link.remote_target if link.is_receiver else link.remote_source).address
        path = path_of(address)
        if path == CBS:
            return self._attach_node(link, self._put_token)
        entity = path.removesuffix(MANAGEMENT)
        if not covers(self.claims, entity):
            raise Unauthorized(f"Unauthorized access to '{address}': there is no token for it.")
        queue = self.bus.namespace.find(entity)
        if entity != path:
            return self._attach_node(link, partial(self._manage, queue))
        if isinstance(link, proton.Receiver):
            return Incoming(link, partial(self._send, queue), queue.options.message_bytes_max)
        assert isinstance(link, proton.Sender)
        return self._attach_receiver(link, queue)

    # Nodes answer requests

    def _attach_node(self, link: proton.Link, answer: Answer) -> Endpoint:
        if isinstance(link, proton.Sender):
            return Replies(link)
        assert isinstance(link, proton.Receiver)
        return Incoming(link, partial(self._answer, link, answer), MESSAGE_BYTES_MAX)

    def _answer(self, link: proton.Link, answer: Answer, raw: bytes, _format: int) -> None:
        request = Request.read(raw)
        self._replies_to(link, request).send(answer(request))

    def _replies_to(self, link: proton.Link, request: Request) -> Replies:
        """The link that the client opened to receive this response."""
        node = path_of(link.remote_target.address)
        found = [
            replies
            for replies in self.links.values()
            if isinstance(replies, Replies)
            and replies.link.session == link.session
            and path_of(replies.link.remote_source.address) == node
        ]
        named = [each for each in found if each.link.remote_target.address == request.reply_to]
        if not found:
            raise ArgumentError("There is no link for the response.")
        return (named or found)[0]

    def _put_token(self, request: Request) -> bytes:
        status, text = 202, "Accepted"
        try:
            if request.text("operation") != "put-token" or not isinstance(request.body, str):
                raise ArgumentError("Only put-token is known here, with a token as its body.")
            path = path_of(request.text("name"))
            if not covers({self.bus.check_token(request.body)}, path):
                raise Unauthorized("InvalidAudience: The token is for something else.")
            if path:
                self.bus.namespace.find(path.removesuffix(MANAGEMENT))
            self.claims.add(path)
        except EntityNotFound:
            status, text = 404, str(EntityNotFound(request.text("name")))
        except Refused as refused:
            status, text = refused.status, str(refused)
        return request.respond({"status-code": Int(status), "status-description": text}, None)

    def _manage(self, queue: Queue, request: Request) -> bytes:
        body = request.body if isinstance(request.body, dict) else {}
        asked = management.Request(queue, body, self.bus.now_ms(), self)
        try:
            result = management.perform(request.text("operation"), asked)
        except management.NoContent:
            return request.answer(204, "No Content", {})
        except Refused as refused:
            return request.refuse(refused)
        finally:
            self.bus.changed(queue)
        return request.answer(200, "OK", result)

    # Queues

    def _send(self, queue: Queue, raw: bytes, message_format: int) -> None:
        parts = split(raw) if message_format == BATCH_FORMAT else [raw]
        queue.add([parse(part) for part in parts], self.bus.now_ms())
        self.bus.changed(queue)

    def _attach_receiver(self, link: proton.Sender, queue: Queue) -> Endpoint | None:
        wanted = _session_filter(link)
        if (wanted is None) == queue.options.requires_session:
            raise NotAllowed(
                "A sessionful message receiver cannot be created on an entity that does not"
                " require sessions."
                if wanted
                else "It is not possible for an entity that requires sessions to create a"
                " non-sessionful message receiver."
            )
        if wanted is None:
            return Outgoing(link, queue, self.bus, None)
        if wanted.session_id is not None:
            return self.open_session(link, queue, wanted.session_id)
        session_id = queue.next_session()
        if session_id is None:
            wait = SessionWait(self, link, queue, _wait_ms(link, self.bus.now_ms()))
            self.bus.waits.append(wait)
            return None
        return self.open_session(link, queue, session_id)

    def open_session(self, link: proton.Sender, queue: Queue, session_id: str) -> Outgoing:
        queue.lock_session(session_id, self, self.bus.now_ms())
        return Outgoing(link, queue, self.bus, HeldSession(queue, session_id, self))


@dataclass(frozen=True)
class WantedSession:
    session_id: str | None  # None: the next available one


@dataclass(eq=False)
class SessionWait:
    """A link that waits for a session."""

    client: Client
    link: proton.Sender
    queue: Queue
    until_ms: int

    def accept(self, session_id: str) -> None:
        client, link = self.client, self.link
        client.links[link] = client.open_session(link, self.queue, session_id)

    def time_out(self) -> None:
        refuse(self.link, TimedOut("The operation did not complete within the allotted time."))


def _session_filter(link: proton.Sender) -> WantedSession | None:
    found = link.remote_source.filter
    found.rewind()
    entries = found.get_object() if found.next() is not None else None
    if not isinstance(entries, dict) or SESSION_FILTER not in entries:
        return None
    value = entries[SESSION_FILTER]
    if isinstance(value, proton.Described):
        value = value.value
    if value is not None and not isinstance(value, str):
        raise ArgumentError("The session filter is not a string.")
    return WantedSession(None if value is None else str(value))


def _wait_ms(link: proton.Sender, now_ms: int) -> int:
    given = (link.remote_properties or {}).get(WAIT)
    most = SESSION_WAIT_SECONDS * 1000
    return now_ms + (min(given, most) if isinstance(given, int) and given > 0 else most)
