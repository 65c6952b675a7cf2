"""The operations of a queue's `$management` node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from holdfast.servicebus_local import delivery
from holdfast.servicebus_local.codec import Array, Int, Timestamp
from holdfast.servicebus_local.limits import (
    PEEKED_BYTES_MAX,
    PEEKED_MESSAGES_MAX,
    SESSIONS_LISTED_MAX,
)
from holdfast.servicebus_local.message import parse
from holdfast.servicebus_local.queue import DESCRIPTION, REASON, Entry, Queue
from holdfast.servicebus_local.refusals import ArgumentError, Unsupported

PREFIX = "com.microsoft:"
RECEIVE_AND_DELETE = 0
ALL_SESSIONS_MS = 253402300800000  # asks for sessions with messages, whatever their state

T = TypeVar("T")


class NoContent(Exception):
    """There is nothing to return, which is no error."""


@dataclass(frozen=True)
class Request:
    queue: Queue
    body: dict[str, Any]
    now_ms: int
    owner: object  # the connection, which owns locks of sessions

    def get(self, name: str, kind: type[T]) -> T:
        value = self.body.get(name)
        if not isinstance(value, kind):
            raise ArgumentError(f"The request lacks a valid {name}.")
        return value

    def items(self, name: str, kind: type[T]) -> list[T]:
        values = self.get(name, list)
        if not values or not all(isinstance(value, kind) for value in values):
            raise ArgumentError(f"The request lacks valid {name}.")
        return values

    def session_id(self) -> str | None:
        """The session that the request names, which its sender has to have locked."""
        if self.body.get("session-id") is None:
            return None
        session_id = self.get("session-id", str)
        if self.queue.options.requires_session:
            self.queue.sessions.held(session_id, self.owner)
        return session_id


def perform(operation: str, request: Request) -> dict[str, Any]:
    found = OPERATIONS.get(operation.removeprefix(PREFIX))
    if found is None:
        raise Unsupported(f"This server does not support the operation {operation}."[:200])
    return found(request)


def _renew_lock(request: Request) -> dict[str, Any]:
    tokens = request.items("lock-tokens", UUID)
    expirations = [Timestamp(request.queue.renew(token, request.now_ms)) for token in tokens]
    return {"expirations": Array(expirations)}


def _schedule(request: Request) -> dict[str, Any]:
    given = [each.get("message") for each in request.items("messages", dict)]
    messages = [raw for raw in given if isinstance(raw, bytes)]
    if len(messages) < len(given):
        raise ArgumentError("A message is missing.")
    entries = request.queue.add([parse(raw) for raw in messages], request.now_ms)
    return {"sequence-numbers": Array([entry.sequence_number for entry in entries])}


def _cancel_scheduled(request: Request) -> dict[str, Any]:
    request.queue.cancel_scheduled(request.items("sequence-numbers", int))
    return {}


def _peek(request: Request) -> dict[str, Any]:
    most = min(max(0, request.get("message-count", int)), PEEKED_MESSAGES_MAX)
    first = request.get("from-sequence-number", int)
    session_id = request.body.get("session-id")
    entries = request.queue.peek(first, most, session_id)
    messages = _within(PEEKED_BYTES_MAX, [delivery.encoded(entry) for entry in entries])
    if not messages:
        raise NoContent
    return {"messages": [{"message": raw} for raw in messages]}


def _within(bytes_max: int, messages: Sequence[bytes]) -> list[bytes]:
    """The first of them, and those after it as long as they fit."""
    chosen: list[bytes] = []
    total = 0
    for raw in messages:
        total += len(raw)
        if chosen and total > bytes_max:
            break
        chosen.append(raw)
    return chosen


def _receive_deferred(request: Request) -> dict[str, Any]:
    queue, session_id = request.queue, request.session_id()
    numbers = request.items("sequence-numbers", int)
    if request.get("receiver-settle-mode", int) == RECEIVE_AND_DELETE:
        entries = queue.take_away_deferred(numbers)
    else:
        entries = queue.take_deferred(numbers, request.now_ms, session_id)
    return {"messages": [_received(entry) for entry in entries]}


def _received(entry: Entry) -> dict[str, Any]:
    answer: dict[str, Any] = {"message": delivery.encoded(entry)}
    if entry.token is not None:
        answer["lock-token"] = entry.token
    return answer


def _settle(request: Request) -> dict[str, Any]:
    queue, now_ms = request.queue, request.now_ms
    request.session_id()
    status = request.get("disposition-status", str)
    given = request.body.get("properties-to-modify")
    properties = {str(key): value for key, value in given.items()} if given else {}
    reasons = {
        REASON: request.body.get("deadletter-reason"),
        DESCRIPTION: request.body.get("deadletter-description"),
    }
    buried = properties | {key: text for key, text in reasons.items() if text}
    settle: dict[str, Callable[[UUID], None]] = {
        "completed": queue.complete,
        "abandoned": lambda token: queue.abandon(token, now_ms, properties),
        "defered": lambda token: queue.defer(token, properties),  # the protocol's spelling
        "suspended": lambda token: queue.dead_letter(token, now_ms, buried),
    }
    if status not in settle:
        raise ArgumentError(f"Unknown disposition {status}."[:200])
    for token in request.items("lock-tokens", UUID):
        settle[status](token)
    return {}


def _renew_session_lock(request: Request) -> dict[str, Any]:
    session_id = _own_session(request)
    until_ms = request.queue.renew_session(session_id, request.owner, request.now_ms)
    return {"expiration": Timestamp(until_ms)}


def _get_session_state(request: Request) -> dict[str, Any]:
    state = request.queue.sessions.states.get(_own_session(request))
    return {"session-state": None if state is None else state.content}


def _set_session_state(request: Request) -> dict[str, Any]:
    content = request.body.get("session-state")
    if content is not None:
        content = request.get("session-state", bytes)
    request.queue.sessions.set_state(_own_session(request), content, request.now_ms)
    return {}


def _own_session(request: Request) -> str:
    session_id = request.get("session-id", str)
    request.queue.sessions.held(session_id, request.owner)
    return session_id


def _list_sessions(request: Request) -> dict[str, Any]:
    skip, top = max(0, request.get("skip", int)), request.get("top", int)
    since_ms = request.get("last-updated-time", int)
    if since_ms >= ALL_SESSIONS_MS:
        found = request.queue.session_ids()
    else:
        states = request.queue.sessions.states
        found = sorted(each for each, state in states.items() if state.updated_ms > since_ms)
    page = found[skip : skip + min(max(0, top), SESSIONS_LISTED_MAX)]
    if not page:
        raise NoContent
    return {"skip": Int(skip + len(page)), "sessions-ids": page}


OPERATIONS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "renew-lock": _renew_lock,
    "schedule-message": _schedule,
    "cancel-scheduled-message": _cancel_scheduled,
    "peek-message": _peek,
    "receive-by-sequence-number": _receive_deferred,
    "update-disposition": _settle,
    "renew-session-lock": _renew_session_lock,
    "get-session-state": _get_session_state,
    "set-session-state": _set_session_state,
    "get-message-sessions": _list_sessions,
}
