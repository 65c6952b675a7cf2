"""Job ids: UUIDv7 (RFC 9562), rising within a process even inside one millisecond."""

from __future__ import annotations

import os
import threading
from random import Random
from uuid import UUID, SafeUUID

_COUNTER_BITS = 74
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_STEP_BITS = 32
_LOW_MASK = (1 << 62) - 1
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62

# Taken during a fork: a child must not inherit it locked by a thread that it does not have.
_lock = threading.Lock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class IdMaker:
    """Makes ids: 48 bits of milliseconds, then 74 bits that start at random and step upward."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._process_id = os.getpid()
        self._milliseconds = 0
        self._counter = 0

    def make(self, epoch_milliseconds: int) -> UUID:
        return self.make_many(epoch_milliseconds, 1)[0]

    def make_many(self, epoch_milliseconds: int, count: int) -> list[UUID]:
        with _lock:
            if self._process_id != os.getpid():
                # A forked child would repeat its parent's ids.
                self._process_id = os.getpid()
                self._random = Random()
                self._milliseconds = 0
            return [_uuid(self._next(epoch_milliseconds)) for _ in range(count)]

    def _next(self, epoch_milliseconds: int) -> int:
        if epoch_milliseconds > self._milliseconds:
            self._milliseconds = epoch_milliseconds
            # The top bit stays clear, so that steps rarely overflow within a millisecond.
            self._counter = self._random.getrandbits(_COUNTER_BITS - 1)
        else:
            self._counter += 1 + self._random.getrandbits(_STEP_BITS)
            if self._counter > _COUNTER_MASK:
                self._milliseconds += 1
                self._counter = self._random.getrandbits(_COUNTER_BITS - 1)
        high, low = self._counter >> 62, self._counter & _LOW_MASK
        return self._milliseconds << 80 | _VERSION | high << 64 | _VARIANT | low


def _uuid(number: int) -> UUID:
    """`UUID(int=number)` without its argument checks, in half the time."""
    made = UUID.__new__(UUID)
    object.__setattr__(made, "int", number)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made
