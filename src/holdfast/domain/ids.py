"""Ids of jobs: UUIDv7 (RFC 9562), rising within a process even inside one millisecond."""

from __future__ import annotations

import os
import threading
from random import Random
from uuid import UUID

_COUNTER_BITS = 74
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_STEP_BITS = 32


class IdMaker:
    """Make ids: 48 bits of milliseconds, then 74 bits that start at random and step upwards."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._milliseconds = 0
        self._counter = 0

    def make(self, epoch_milliseconds: int) -> UUID:
        with self._lock:
            if self._process_id != os.getpid():
                # A forked child would repeat its parent's numbers, and with them its ids.
                self._process_id = os.getpid()
                self._random = Random()
                self._milliseconds = 0
            if epoch_milliseconds > self._milliseconds:
                self._milliseconds = epoch_milliseconds
                # The top bit stays clear, so that steps don't overflow within a millisecond.
                self._counter = self._random.getrandbits(_COUNTER_BITS - 1)
            else:
                self._counter += 1 + self._random.getrandbits(_STEP_BITS)
                if self._counter > _COUNTER_MASK:
                    self._milliseconds += 1
                    self._counter = self._random.getrandbits(_COUNTER_BITS - 1)
            counter = self._counter
            high = counter >> 62
            low = counter & ((1 << 62) - 1)
            value = (self._milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
        return UUID(int=value)
