"""How long to wait before asking again: longer each time, never in step with others."""

from __future__ import annotations

import asyncio

from holdfast.runtime.seam import Seam


class Backoff:
    """Waits that double from `least_seconds` to `most_seconds`, each shortened by up to a half."""

    def __init__(self, seam: Seam, least_seconds: float, most_seconds: float) -> None:
        self._random = seam.random
        self._least = least_seconds
        self._most = most_seconds
        self._next = least_seconds

    def reset(self) -> None:
        self._next = self._least

    def next_seconds(self) -> float:
        seconds = self._next * (1 - self._random.random() / 2)
        self._next = min(self._most, self._next * 2)
        return seconds

    async def wait(self) -> None:
        await asyncio.sleep(self.next_seconds())
