"""The sessions of a queue: who has locked which, until when, and what state it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.servicebus_local.limits import SESSION_STATE_BYTES_MAX
from holdfast.servicebus_local.refusals import (
    MessageTooLarge,
    SessionCannotBeLocked,
    SessionLockLost,
)


@dataclass
class SessionLock:
    owner: object
    until_ms: int


@dataclass
class SessionState:
    content: bytes
    updated_ms: int


@dataclass
class Sessions:
    locks: dict[str, SessionLock] = field(default_factory=dict)
    states: dict[str, SessionState] = field(default_factory=dict)

    def lock(self, session_id: str, owner: object, until_ms: int) -> int:
        if session_id in self.locks:
            raise SessionCannotBeLocked(session_id)
        self.locks[session_id] = SessionLock(owner, until_ms)
        return until_ms

    def renew(self, session_id: str, owner: object, until_ms: int) -> int:
        self.held(session_id, owner).until_ms = until_ms
        return until_ms

    def held(self, session_id: str, owner: object) -> SessionLock:
        lock = self.locks.get(session_id)
        if lock is None or lock.owner is not owner:
            raise SessionLockLost
        return lock

    def set_state(self, session_id: str, content: bytes | None, now_ms: int) -> None:
        if content is None:
            self.states.pop(session_id, None)
        elif len(content) > SESSION_STATE_BYTES_MAX:
            raise MessageTooLarge(len(content), SESSION_STATE_BYTES_MAX)
        else:
            self.states[session_id] = SessionState(content, now_ms)
