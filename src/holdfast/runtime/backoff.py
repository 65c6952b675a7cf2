"""Waiting: longer after each failure and never in step with others, or for an event."""

from __future__ import annotations

import asyncio

from holdfast.runtime.seam import Seam


class Backoff:
    """Delays that double from `least_seconds` to `most_seconds`, each cut by up to half."""

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


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, but no longer than this. Unlike `wait_for`, it never swallows a cancel
    that comes together with the event."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
