"""The links of a connection: what clients send to queues and nodes, and what they receive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID, uuid4

import proton

from holdfast.servicebus_local import delivery as deliveries
from holdfast.servicebus_local.limits import (
    INCOMING_CREDIT,
    OUTGOING_BYTES_MAX,
    REFUSED_BYTES_MAX,
    REPLIES_WAITING_MAX,
)
from holdfast.servicebus_local.queue import Queue
from holdfast.servicebus_local.refusals import (
    MessageTooLarge,
    QuotaExceeded,
    Refused,
    SessionLockLost,
    Unsupported,
)
from holdfast.servicebus_local.settlement import OUTCOMES, settle

SESSION_FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
BATCH_BYTES_MAX = "com.microsoft:max-message-batch-size"
TICKS_OF_1970 = 621_355_968_000_000_000  # of 100 ns, since the year 1
TICKS_PER_MS = 10_000


class Endpoint(Protocol):
    """What is behind a link."""

    def on_delivery(self, delivery: proton.Delivery, message_format: int | None) -> None: ...

    def on_flow(self) -> None: ...

    def on_closed(self) -> None: ...


class Bus(Protocol):
    """What links need of the bus that they belong to."""

    receivers: list[Outgoing]

    def now_ms(self) -> int: ...

    def changed(self, queue: Queue) -> None:
        """Messages or credit may have come: deliver what can be delivered."""


@dataclass
class HeldSession:
    """A session that a receiver has locked."""

    queue: Queue
    session_id: str
    owner: object

    def __post_init__(self) -> None:
        self.lock = self.queue.sessions.held(self.session_id, self.owner)

    @property
    def is_lost(self) -> bool:
        return self.queue.sessions.locks.get(self.session_id) is not self.lock

    def announce(self, link: proton.Sender) -> None:
        """Tell the client which session it is, and until when it is locked."""
        chosen = link.source.filter
        chosen.clear()
        chosen.put_object({proton.symbol(SESSION_FILTER): self.session_id})
        ticks = TICKS_OF_1970 + self.lock.until_ms * TICKS_PER_MS
        link.properties = {proton.symbol(LOCKED_UNTIL): ticks}

    def give_up(self, now_ms: int) -> None:
        if not self.is_lost:
            self.queue.unlock_session(self.session_id, now_ms)


def refuse(link: proton.Link, refused: Refused) -> None:
    """Answer without a source and a target, so that the client does not send at once, and close."""
    link.source.type = link.target.type = proton.Terminus.UNSPECIFIED
    link.condition = condition_of(refused)
    link.open()
    link.close()


def condition_of(refused: Refused) -> proton.Condition:
    # Some clients read all three parts of an error, so none may be left out.
    info: Any = {proton.symbol("com.microsoft:tracking-id"): str(uuid4())}
    return proton.Condition(refused.condition, str(refused), info)


def mirror(link: proton.Link) -> None:
    """Agree to what the client asked for."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode


def new_delivery(link: proton.Sender, token: UUID) -> proton.Delivery:
    """A delivery whose tag is the token of the lock, as the real service has it."""
    return link.delivery(token.bytes_le)  # type: ignore[arg-type]  # takes bytes, too


class Incoming:
    """Messages from a client, for a queue or for a node."""

    def __init__(
        self, link: proton.Receiver, take: Callable[[bytes, int], None], bytes_max: int
    ) -> None:
        self._link = link
        self._take = take
        self._bytes_max = bytes_max
        self._parts = bytearray()
        self._size = 0
        self._format = 0
        mirror(link)
        link.max_message_size = bytes_max
        link.properties = {proton.symbol(BATCH_BYTES_MAX): proton.ulong(bytes_max)}
        link.open()
        link.flow(INCOMING_CREDIT)

    def on_delivery(self, delivery: proton.Delivery, message_format: int | None) -> None:
        if delivery.aborted:
            self._clear()
            delivery.settle()
            return
        if not self._size:
            self._format = message_format or 0
        self._read(self._link.recv(delivery.pending) or b"")
        if self._size > REFUSED_BYTES_MAX:
            self._link.condition = condition_of(MessageTooLarge(self._size, self._bytes_max))
            self._link.close()
        elif not delivery.partial:
            self._link.advance()
            self._finish(delivery)

    def _read(self, more: bytes | bytearray) -> None:
        """Keep what may be used, and count the rest."""
        self._size += len(more)
        if self._size <= self._bytes_max:
            self._parts += more

    def _finish(self, delivery: proton.Delivery) -> None:
        raw, size = bytes(self._parts), self._size
        self._clear()
        try:
            if size > self._bytes_max:
                raise MessageTooLarge(size, self._bytes_max)
            self._take(raw, self._format)
        except Refused as refused:
            delivery.local.condition = condition_of(refused)
            delivery.update(proton.Delivery.REJECTED)
        else:
            delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        if self._link.credit <= INCOMING_CREDIT // 2:
            self._link.flow(INCOMING_CREDIT - self._link.credit)

    def _clear(self) -> None:
        self._parts.clear()
        self._size = 0

    def on_flow(self) -> None:
        pass

    def on_closed(self) -> None:
        pass


class Replies:
    """Responses of a node."""

    def __init__(self, link: proton.Sender) -> None:
        self.link = link
        mirror(link)
        link.open()

    def send(self, raw: bytes) -> None:
        if self.link.queued >= REPLIES_WAITING_MAX:
            raise QuotaExceeded("Too many responses wait for the client.")
        delivery = new_delivery(self.link, uuid4())
        self.link.stream(raw)
        self.link.advance()
        delivery.settle()

    def on_delivery(self, delivery: proton.Delivery, message_format: int | None) -> None:
        pass

    def on_flow(self) -> None:
        if self.link.drain_mode:
            self.link.drained()

    def on_closed(self) -> None:
        pass


class Outgoing:
    """Messages of a queue, or of one session in it, for a receiver."""

    def __init__(
        self, link: proton.Sender, queue: Queue, bus: Bus, session: HeldSession | None
    ) -> None:
        self.link = link
        self.queue = queue
        self.session = session
        self._bus = bus
        self._is_settled = link.remote_snd_settle_mode == proton.Link.SND_SETTLED
        self.is_held_back = False  # until the client has read what waits for it
        self._tokens: dict[proton.Delivery, UUID] = {}
        mirror(link)
        if session is not None:
            session.announce(link)
        link.open()
        bus.receivers.append(self)

    def send_one(self) -> bool:
        """Send the next message if the client has room for it."""
        self.is_held_back = self.link.session.outgoing_bytes >= OUTGOING_BYTES_MAX
        if self.link.credit <= 0 or self.is_held_back:
            return False
        session_id = None if self.session is None else self.session.session_id
        if self._is_settled:
            entry = self.queue.take_away(session_id)
        else:
            entry = self.queue.take(self._bus.now_ms(), session_id)
        if entry is None:
            return False
        token = entry.token or uuid4()
        delivery = new_delivery(self.link, token)
        self.link.stream(deliveries.encoded(entry))
        self.link.advance()
        if self._is_settled:
            delivery.settle()
        else:
            self._tokens[delivery] = token
        return True

    def on_delivery(self, delivery: proton.Delivery, message_format: int | None) -> None:
        token = self._tokens.get(delivery)
        outcome = delivery.remote_state
        if not delivery.updated or token is None:
            return
        if outcome not in OUTCOMES:
            if delivery.settled:
                self._tokens.pop(delivery)
                delivery.settle()
            elif outcome not in (0, proton.Delivery.RECEIVED):
                self._reject(delivery, Unsupported("This server does not support transactions."))
            return
        try:
            settle(self.queue, token, delivery.remote, self._bus.now_ms())
        except Refused as refused:
            self._reject(delivery, refused)
        else:
            self._end(delivery, outcome)
        self._bus.changed(self.queue)

    def _reject(self, delivery: proton.Delivery, refused: Refused) -> None:
        delivery.local.condition = condition_of(refused)
        self._end(delivery, proton.Delivery.REJECTED)

    def _end(self, delivery: proton.Delivery, outcome: Any) -> None:
        self._tokens.pop(delivery, None)
        delivery.update(outcome)
        delivery.settle()

    def on_flow(self) -> None:
        self._bus.changed(self.queue)

    def drain(self) -> None:
        """Give back credit for which there is no message, if the client wants to stop."""
        if self.link.drain_mode:
            self.link.drained()

    def lose_session(self) -> None:
        self._close(condition_of(SessionLockLost()))

    def fail(self) -> None:
        self._close(proton.Condition("amqp:internal-error", "The receiver failed."))

    def _close(self, condition: proton.Condition) -> None:
        """Deliver nothing more, whenever the client will notice."""
        self._leave()
        self.link.condition = condition
        self.link.close()

    def _leave(self) -> None:
        if self in self._bus.receivers:
            self._bus.receivers.remove(self)

    def on_closed(self) -> None:
        """Locked messages stay locked until their locks expire, but a session is free again."""
        self._leave()
        self._tokens.clear()
        if self.session is not None:
            self.session.give_up(self._bus.now_ms())
            self._bus.changed(self.queue)
