"""Limit the waiting requests of each caller, so that one key can't use up all connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.api.callers import Caller
from holdfast.api.limits import RETRY_AFTER_SECONDS, WAITING_PER_KEY_MAX
from holdfast.api.problems import Problem


class Waiting:
    """Counts by key or, while there are no keys, by address."""

    def __init__(self) -> None:
        self._counts: Counter[str | None] = Counter()

    def count(self, caller: Caller) -> int:
        return self._counts[_who(caller)]

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Count a request of this caller as waiting until the end of the block. Raise a Problem if
        too many are already waiting."""
        who = _who(caller)
        if self._counts[who] >= WAITING_PER_KEY_MAX:
            detail = f"this caller has {WAITING_PER_KEY_MAX:,} waiting requests; try again later"
            headers = {"retry-after": str(RETRY_AFTER_SECONDS)}
            raise Problem("too-many-requests", detail, headers=headers)
        self._counts[who] += 1
        try:
            yield
        finally:
            self._counts[who] -= 1
            if not self._counts[who]:
                del self._counts[who]


def _who(caller: Caller) -> str | None:
    return caller.key_id or caller.address
