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
    """Makes ids: 48 bits of milliseconds, then 74 bits that start at random and step upward.

    Each tenant has its own steps, because their sizes tell how many ids were made in between.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._process_id = os.getpid()
        self._milliseconds = 0
        self._counters: dict[str | None, int] = {}  # of this millisecond, by tenant

    def make(self, epoch_milliseconds: int, tenant: str | None = None) -> UUID:
        return self.make_many(epoch_milliseconds, 1, tenant)[0]

    def make_many(
        self, epoch_milliseconds: int, count: int, tenant: str | None = None
    ) -> list[UUID]:
        with _lock:
            if self._process_id != os.getpid():
                # A forked child would repeat its parent's ids.
                self._process_id = os.getpid()
                self._random = Random()
                self._milliseconds = 0
            if epoch_milliseconds > self._milliseconds:
                self._start(epoch_milliseconds)
            counter = self._counters.get(tenant)
            ids = []
            for _ in range(count):
                counter = self._next(counter)
                ids.append(_uuid(self._milliseconds, counter))
            if counter is not None:
                self._counters[tenant] = counter
            return ids

    def _start(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._counters.clear()

    def _next(self, counter: int | None) -> int:
        if counter is not None:
            counter += 1 + self._random.getrandbits(_STEP_BITS)
            if counter <= _COUNTER_MASK:
                return counter
            self._start(self._milliseconds + 1)
        # The top bit stays clear, so that steps rarely overflow within a millisecond.
        return self._random.getrandbits(_COUNTER_BITS - 1)


def _uuid(milliseconds: int, counter: int) -> UUID:
    """`UUID(int=...)` without its argument checks, in half the time."""
    high, low = counter >> 62, counter & _LOW_MASK
    number = milliseconds << 80 | _VERSION | high << 64 | _VARIANT | low
    made = UUID.__new__(UUID)
    object.__setattr__(made, "int", number)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made
