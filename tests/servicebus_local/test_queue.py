"""A queue against a model of it: whatever is done in whatever order, no message is lost, doubled,
or delivered to two receivers at once."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.servicebus_local.limits import QUEUE_BYTES_MAX
from holdfast.servicebus_local.options import QueueOptions
from holdfast.servicebus_local.queue import Entry, Queue, State
from holdfast.servicebus_local.refusals import (
    MessageLockLost,
    MessageNotFound,
    NotAllowed,
    SessionCannotBeLocked,
    SessionLockLost,
)
from tests.servicebus_local.messages import message

LOCK_MS = 1000
DELIVERIES_MAX = 3


@dataclass
class Expected:
    state: State
    count: int = 0
    token: UUID | None = None
    until_ms: int = 0
    is_deferred: bool = False


class QueueMachine(RuleBasedStateMachine):
    """The model knows messages by their IDs, and what should have become of each."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = Queue(QueueOptions())
        options = QueueOptions(lock_seconds=LOCK_MS / 1000, deliveries_max=DELIVERIES_MAX)
        self.queue = Queue(options, self.dead, self.dead.quota)
        self.now_ms = 1_000_000
        self.expected: dict[str, Expected] = {}
        self.buried: set[str] = set()
        self.sent = 0

    @rule(delay_ms=some.sampled_from([None, 0, 500, 5000]))
    def send(self, delay_ms: int | None) -> None:
        self.sent += 1
        name = str(self.sent)
        scheduled_ms = None if delay_ms is None else self.now_ms + delay_ms
        self.queue.add([message(message_id=name, scheduled_ms=scheduled_ms)], self.now_ms)
        self.expected[name] = Expected("scheduled" if delay_ms else "active")
        self.expected[name].until_ms = scheduled_ms or 0

    @rule()
    def take(self) -> None:
        active = [entry for entry in self.entries() if entry.state == "active"]
        entry = self.queue.take(self.now_ms)
        assert entry is (active[0] if active else None)
        if entry is not None:
            self.locked(entry)

    @rule(data=some.data())
    def take_deferred(self, data: some.DataObject) -> None:
        deferred = [entry for entry in self.entries() if entry.state == "deferred"]
        if deferred:
            entry = data.draw(some.sampled_from(deferred))
            assert self.queue.take_deferred([entry.sequence_number], self.now_ms) == [entry]
            self.locked(entry)

    @rule(
        data=some.data(),
        outcome=some.sampled_from(["complete", "abandon", "release", "defer", "bury", "renew"]),
    )
    def settle(self, data: some.DataObject, outcome: str) -> None:
        held = [name for name, each in self.expected.items() if each.token is not None]
        if not held:
            return
        name = data.draw(some.sampled_from(sorted(held)))
        each = self.expected[name]
        token, each.token = each.token, None
        assert token is not None
        match outcome:
            case "complete":
                self.queue.complete(token)
                del self.expected[name]
            case "abandon":
                self.queue.abandon(token, self.now_ms)
                self.failed(name)
            case "release":
                self.queue.release(token, self.now_ms)
                each.state = "deferred" if each.is_deferred else "active"
            case "defer":
                self.queue.defer(token)
                each.state, each.is_deferred = "deferred", True
            case "bury":
                self.queue.dead_letter(token, self.now_ms, {})
                self.bury(name)
            case "renew":
                each.until_ms = self.queue.renew(token, self.now_ms)
                assert each.until_ms == self.now_ms + LOCK_MS
                each.token = token

    @rule(ms=some.sampled_from([1, LOCK_MS // 2, LOCK_MS, 10_000]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.advance(self.now_ms)
        for name, each in list(self.expected.items()):
            if each.state == "locked" and each.until_ms <= self.now_ms:
                each.token = None
                self.failed(name)
            elif each.state == "scheduled" and each.until_ms <= self.now_ms:
                each.state = "active"

    @rule()
    def use_a_lost_lock(self) -> None:
        with pytest.raises(MessageLockLost):
            self.queue.complete(uuid4())

    @invariant()
    def every_message_is_where_it_should_be(self) -> None:
        found = {str(entry.message.message_id): entry for entry in self.queue.entries.values()}
        assert found.keys() == self.expected.keys()
        assert len(found) == len(self.queue.entries)
        for name, each in self.expected.items():
            entry = found[name]
            assert (entry.state, entry.delivery_count) == (each.state, each.count)
            assert entry.token == each.token
        assert {str(entry.message.message_id) for entry in self.dead.entries.values()} == (
            self.buried
        )
        assert {entry.state for entry in self.dead.entries.values()} <= {"active"}

    @invariant()
    def sizes_add_up(self) -> None:
        entries = [*self.queue.entries.values(), *self.dead.entries.values()]
        used = sum(entry.message.size for entry in entries)
        assert self.queue.quota.bytes_left == QUEUE_BYTES_MAX - used

    @invariant()
    def what_is_due_next_is_in_the_future(self) -> None:
        next_ms = self.queue.next_ms()
        assert next_ms is None or next_ms > self.now_ms

    def entries(self) -> list[Entry]:
        return [self.queue.entries[number] for number in sorted(self.queue.entries)]

    def locked(self, entry: Entry) -> None:
        each = self.expected[str(entry.message.message_id)]
        assert each.token is None
        each.state, each.token = "locked", entry.token
        each.until_ms = self.now_ms + LOCK_MS

    def failed(self, name: str) -> None:
        each = self.expected[name]
        each.count += 1
        each.state = "deferred" if each.is_deferred else "active"
        if each.count >= DELIVERIES_MAX:
            self.bury(name)

    def bury(self, name: str) -> None:
        del self.expected[name]
        self.buried.add(name)


def test_a_queue_behaves_as_its_model() -> None:
    run_state_machine_as_test(QueueMachine)


def session_queue() -> Queue:
    dead = Queue(QueueOptions())
    return Queue(QueueOptions(lock_seconds=1, requires_session=True), dead, dead.quota)


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    queue = session_queue()
    with pytest.raises(NotAllowed):
        queue.add([message(session_id="a"), message()], 0)
    assert queue.entries == {}


def test_all_of_the_scheduled_messages_are_canceled_or_none() -> None:
    queue = Queue(QueueOptions(), Queue(QueueOptions()))
    (entry,) = queue.add([message(scheduled_ms=10)], 0)
    with pytest.raises(MessageNotFound):
        queue.cancel_scheduled([entry.sequence_number, 99])
    assert entry.state == "scheduled"


def test_a_message_of_a_session_stays_locked_as_long_as_its_session_is_renewed() -> None:
    queue = session_queue()
    queue.add([message(session_id="a", ttl_ms=2500)], 0)
    owner = object()
    queue.lock_session("a", owner, 0)
    entry = queue.take(0, "a")
    assert entry is not None
    assert entry.token is not None
    for now_ms in (900, 1800, 2700):
        queue.renew_session("a", owner, now_ms)
        queue.advance(now_ms)
        assert entry.state == "locked"
    queue.complete(entry.token)
    assert queue.entries == {}


def test_a_session_is_locked_once_and_renewed_by_its_owner_only() -> None:
    queue = session_queue()
    owner = object()
    queue.lock_session("a", owner, 0)
    with pytest.raises(SessionCannotBeLocked):
        queue.lock_session("a", owner, 0)
    with pytest.raises(SessionLockLost):
        queue.renew_session("a", object(), 0)


def test_a_locked_message_expires_when_it_is_given_back() -> None:
    queue = Queue(QueueOptions(lock_seconds=1), Queue(QueueOptions()))
    queue.add([message(ttl_ms=100)], 0)
    entry = queue.take(50)
    assert entry is not None
    assert entry.token is not None
    queue.advance(200)
    assert entry.state == "locked"
    queue.release(entry.token, 300)
    assert queue.entries == {}


def test_a_scheduled_message_lives_from_its_time_on() -> None:
    queue = Queue(QueueOptions(), Queue(QueueOptions()))
    queue.add([message(ttl_ms=100, scheduled_ms=1000)], 0)
    queue.advance(500)
    queue.advance(1050)
    assert [entry.state for entry in queue.entries.values()] == ["active"]
    queue.advance(1150)
    assert queue.entries == {}


def test_a_deferred_message_that_is_dead_lettered_can_be_received_there() -> None:
    dead = Queue(QueueOptions())
    queue = Queue(QueueOptions(), dead, dead.quota)
    queue.add([message()], 0)
    entry = queue.take(0)
    assert entry is not None
    assert entry.token is not None
    queue.defer(entry.token)
    queue.take_deferred([entry.sequence_number], 0)
    queue.dead_letter(entry.token, 0, {})
    assert dead.take(0) is entry


def test_abandoning_with_properties_changes_the_message() -> None:
    queue = Queue(QueueOptions(), Queue(QueueOptions()))
    queue.add([message(properties={"a": 1})], 0)
    entry = queue.take(0)
    assert entry is not None
    assert entry.token is not None
    queue.abandon(entry.token, 0, {"tried": True})
    assert entry.message.application_properties == {"a": 1, "tried": True}
