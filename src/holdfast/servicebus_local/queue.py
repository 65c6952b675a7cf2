"""One queue as a state machine: no connections, no clock. Times are milliseconds since 1970."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid4

from holdfast.servicebus_local.limits import QUEUE_BYTES_MAX
from holdfast.servicebus_local.message import Message
from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.refusals import (
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    NotAllowed,
    QuotaExceeded,
    Refused,
    SessionLockLost,
)
from holdfast.servicebus_local.sessions import Sessions

State: TypeAlias = Literal["active", "locked", "scheduled", "deferred"]

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
TOO_MANY = "MaxDeliveryCountExceeded"
EXPIRED = "TTLExpiredException"


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue."""

    message: Message
    sequence_number: int
    enqueued_ms: int
    delivery_count: int = 0
    scheduled_ms: int | None = None  # until it is active
    is_deferred: bool = False
    token: UUID | None = None  # of its lock
    locked_until_ms: int | None = None

    @property
    def state(self) -> State:
        if self.token is not None:
            return "locked"
        if self.scheduled_ms is not None:
            return "scheduled"
        return "deferred" if self.is_deferred else "active"

    @property
    def expires_ms(self) -> int | None:
        ttl_ms = self.message.ttl_ms
        return None if ttl_ms is None else (self.scheduled_ms or self.enqueued_ms) + ttl_ms

    @property
    def session_id(self) -> str | None:
        return self.message.session_id


@dataclass
class Quota:
    """What a queue and its dead letters hold together."""

    bytes_left: int = QUEUE_BYTES_MAX


@dataclass(eq=False)
class Queue:
    options: QueueOptions
    dead_letters: Queue | None = None  # None: these are dead letters
    quota: Quota = field(default_factory=Quota)
    sessions: Sessions = field(default_factory=Sessions)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    entries: dict[int, Entry] = field(default_factory=dict)  # by sequence number
    _locked: dict[UUID, Entry] = field(default_factory=dict)
    _ready: dict[str | None, list[int]] = field(default_factory=dict)  # heaps, by session
    _due: list[tuple[int, int]] = field(default_factory=list)  # heap of times and numbers

    # What senders do

    def check(self, message: Message) -> None:
        """Raise unless the message may be sent to this queue."""
        if self.dead_letters is None:
            raise NotAllowed("Messages cannot be sent to a dead-letter queue.")
        if message.size > self.options.message_bytes_max:
            raise MessageTooLarge(message.size, self.options.message_bytes_max)
        if self.options.requires_session and message.session_id is None:
            raise NotAllowed(
                "The SessionId was not set on a message, and it cannot be sent to the entity."
                " Entities that have session support enabled can only receive messages that have"
                " the SessionId set to a valid value."
            )

    def add(self, messages: Sequence[Message], now_ms: int) -> list[Entry]:
        """Take all of the messages, or none."""
        for message in messages:
            self.check(message)
        if sum(message.size for message in messages) > self.quota.bytes_left:
            raise QuotaExceeded("The queue has reached its maximum size. Receive some messages.")
        return [self._add(message, now_ms) for message in messages]

    def _add(self, message: Message, now_ms: int) -> Entry:
        entry = Entry(message, next(self.numbers), now_ms)
        if message.scheduled_ms is not None and message.scheduled_ms > now_ms:
            entry.scheduled_ms = message.scheduled_ms
        self._insert(entry)
        return entry

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        """Cancel all of them, or none."""
        found = [self._found(number, "scheduled") for number in sequence_numbers]
        for entry in found:
            self._remove(entry)

    # What receivers do

    def take(self, now_ms: int, session_id: str | None = None) -> Entry | None:
        """Lock the next active message."""
        entry = self._next(session_id)
        if entry is not None:
            self._lock(entry, now_ms)
        return entry

    def take_away(self, session_id: str | None = None) -> Entry | None:
        """Remove the next active message, for a receiver that settles nothing."""
        entry = self._next(session_id)
        if entry is not None:
            self._remove(entry)
        return entry

    def take_deferred(
        self, sequence_numbers: Sequence[int], now_ms: int, session_id: str | None = None
    ) -> list[Entry]:
        """Lock all of these deferred messages, or none."""
        found = [self._found(number, "deferred") for number in sequence_numbers]
        if any(entry.session_id != session_id for entry in found if self._has_sessions):
            raise NotAllowed("A message belongs to another session.")
        for entry in found:
            self._lock(entry, now_ms)
        return found

    def take_away_deferred(self, sequence_numbers: Sequence[int]) -> list[Entry]:
        found = [self._found(number, "deferred") for number in sequence_numbers]
        for entry in found:
            self._remove(entry)
        return found

    def peek(self, first: int, most: int, session_id: str | None = None) -> list[Entry]:
        numbers = sorted(number for number in self.entries if number >= first)
        entries = (self.entries[number] for number in numbers)
        chosen = (each for each in entries if session_id is None or each.session_id == session_id)
        return [entry for entry, _ in zip(chosen, range(most), strict=False)]

    # What is done with a locked message

    def complete(self, token: UUID) -> None:
        self._remove(self._held(token))

    def abandon(
        self, token: UUID, now_ms: int, properties: Mapping[str, Any] | None = None
    ) -> None:
        """Give it back as a failed delivery."""
        entry = self._held(token)
        self._change(entry, properties)
        self._give_back(entry, now_ms, failed=True)

    def release(self, token: UUID, now_ms: int) -> None:
        """Give it back as if it had not been delivered."""
        self._give_back(self._held(token), now_ms, failed=False)

    def defer(self, token: UUID, properties: Mapping[str, Any] | None = None) -> None:
        entry = self._held(token)
        self._change(entry, properties)
        entry.is_deferred = True
        self._unlock(entry)

    def dead_letter(self, token: UUID, now_ms: int, properties: Mapping[str, Any]) -> None:
        entry = self._held(token)
        if self.dead_letters is None:
            raise NotAllowed("A dead letter cannot be dead-lettered again.")
        self._bury(entry, properties)

    def renew(self, token: UUID, now_ms: int) -> int:
        """Lock the message again; return until when."""
        entry = self._held(token)
        if self._has_sessions:
            raise NotAllowed("Messages of a session are locked with the session.")
        return self._lock_until(entry, now_ms)

    # Sessions

    def next_session(self) -> str | None:
        """The unlocked session whose message has waited longest."""
        waiting = [
            (self._front(heap), session_id)
            for session_id, heap in self._ready.items()
            if session_id is not None and session_id not in self.sessions.locks
        ]
        ready = [(number, session_id) for number, session_id in waiting if number is not None]
        return min(ready)[1] if ready else None

    def lock_session(self, session_id: str, owner: object, now_ms: int) -> int:
        """Lock a session that nobody has locked; answer until when."""
        return self.sessions.lock(session_id, owner, now_ms + self._lock_ms)

    def renew_session(self, session_id: str, owner: object, now_ms: int) -> int:
        return self.sessions.renew(session_id, owner, now_ms + self._lock_ms)

    def unlock_session(self, session_id: str, now_ms: int, *, failed: bool = False) -> None:
        """Give back its messages: as failed deliveries if its lock expired."""
        self.sessions.locks.pop(session_id, None)
        for entry in list(self._locked.values()):
            if entry.session_id == session_id:
                self._give_back(entry, now_ms, failed=failed)

    def session_ids(self) -> list[str]:
        """Sessions with messages or a state."""
        waiting = {entry.session_id for entry in self.entries.values() if entry.session_id}
        return sorted(waiting | self.sessions.states.keys())

    # What time does

    def next_ms(self) -> int | None:
        """When something is due next: the expiry of a lock or a message, a scheduled message."""
        times = [lock.until_ms for lock in self.sessions.locks.values()]
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def advance(self, now_ms: int) -> bool:
        """Do what is due; answer whether anything was."""
        lost = [key for key, lock in self.sessions.locks.items() if lock.until_ms <= now_ms]
        for session_id in lost:
            self.unlock_session(session_id, now_ms, failed=True)
        changed = bool(lost)
        while self._due and self._due[0][0] <= now_ms:
            _, number = heapq.heappop(self._due)
            entry = self.entries.get(number)
            if entry is not None:
                changed |= self._come_due(entry, now_ms)
        return changed

    def _come_due(self, entry: Entry, now_ms: int) -> bool:
        if entry.token is not None:
            # Messages of a session are locked as long as the session.
            if self._has_sessions or not _is_past(entry.locked_until_ms, now_ms):
                return False
            self._give_back(entry, now_ms, failed=True)
        elif _is_past(entry.scheduled_ms, now_ms):
            self._activate(entry, now_ms)
        elif _is_past(entry.expires_ms, now_ms):
            self._expire(entry)
        else:
            return False
        return True

    def _activate(self, entry: Entry, now_ms: int) -> None:
        """A scheduled message is enqueued now, and gets the number of now."""
        self._remove(entry)
        self._insert(Entry(entry.message, next(self.numbers), now_ms))

    # The parts

    @property
    def _has_sessions(self) -> bool:
        return self.options.requires_session

    @property
    def _lock_ms(self) -> int:
        return max(1, round(self.options.lock_seconds * 1000))

    def _insert(self, entry: Entry) -> None:
        self.entries[entry.sequence_number] = entry
        self.quota.bytes_left -= entry.message.size
        self._await(entry, entry.scheduled_ms)
        if self.dead_letters is not None:  # dead letters are kept
            self._await(entry, entry.expires_ms)
        if entry.state == "active":
            self._make_ready(entry)

    def _remove(self, entry: Entry) -> None:
        self._unlock(entry)
        del self.entries[entry.sequence_number]
        self.quota.bytes_left += entry.message.size

    def _change(self, entry: Entry, properties: Mapping[str, Any] | None) -> None:
        self.quota.bytes_left += entry.message.size
        entry.message = entry.message.with_properties(properties or {})
        self.quota.bytes_left -= entry.message.size

    def _await(self, entry: Entry, time_ms: int | None) -> None:
        if time_ms is not None:
            heapq.heappush(self._due, (time_ms, entry.sequence_number))

    def _make_ready(self, entry: Entry) -> None:
        key = entry.session_id if self._has_sessions else None
        heapq.heappush(self._ready.setdefault(key, []), entry.sequence_number)

    def _next(self, session_id: str | None) -> Entry | None:
        heap = self._ready.get(session_id, [])
        number = self._front(heap)
        if number is None:
            self._ready.pop(session_id, None)
            return None
        heapq.heappop(heap)
        return self.entries[number]

    def _front(self, heap: list[int]) -> int | None:
        """The first that is still there: others have expired since."""
        while heap and heap[0] not in self.entries:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _lock(self, entry: Entry, now_ms: int) -> None:
        entry.token = uuid4()
        self._locked[entry.token] = entry
        if self._has_sessions and entry.session_id in self.sessions.locks:
            entry.locked_until_ms = self.sessions.locks[entry.session_id].until_ms
        else:
            self._lock_until(entry, now_ms)

    def _lock_until(self, entry: Entry, now_ms: int) -> int:
        entry.locked_until_ms = now_ms + self._lock_ms
        self._await(entry, entry.locked_until_ms)
        return entry.locked_until_ms

    def _unlock(self, entry: Entry) -> None:
        if entry.token is not None:
            self._locked.pop(entry.token, None)
            entry.token = entry.locked_until_ms = None

    def _held(self, token: UUID) -> Entry:
        entry = self._locked.get(token)
        if entry is None:
            raise self._lost()
        return entry

    def _lost(self) -> Refused:
        return SessionLockLost() if self._has_sessions else MessageLockLost()

    def _found(self, number: int, state: State) -> Entry:
        entry = self.entries.get(number)
        if entry is None or entry.state != state:
            raise MessageNotFound(number)
        return entry

    def _give_back(self, entry: Entry, now_ms: int, *, failed: bool) -> None:
        self._unlock(entry)
        entry.delivery_count += failed
        is_kept = self.dead_letters is None
        if failed and not is_kept and entry.delivery_count >= self.options.deliveries_max:
            self._bury(entry, _too_many(self.options.deliveries_max))
        elif not is_kept and _is_past(entry.expires_ms, now_ms):
            self._expire(entry)
        elif not entry.is_deferred:
            self._make_ready(entry)

    def _expire(self, entry: Entry) -> None:
        if self.options.dead_letter_expired:
            text = "The message expired and was dead lettered."
            self._bury(entry, {REASON: EXPIRED, DESCRIPTION: text})
        else:
            self._remove(entry)

    def _bury(self, entry: Entry, properties: Mapping[str, Any]) -> None:
        """Move it to the dead letters. It keeps its number and its count."""
        assert self.dead_letters is not None
        self._remove(entry)
        entry.message = entry.message.with_properties(properties)
        entry.is_deferred = False
        self.dead_letters._insert(entry)


def _is_past(time_ms: int | None, now_ms: int) -> bool:
    return time_ms is not None and time_ms <= now_ms


def _too_many(most: int) -> dict[str, str]:
    text = f"Message could not be consumed after {most} delivery attempts."
    return {REASON: TOO_MANY, DESCRIPTION: text}
