"""A network that is slow, narrow and lossy, but never down."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tests.support.proxy import Proxy

SEGMENT_BYTES = 1460  # what one packet of TCP carries
APART_SECONDS = 1e-6


@dataclass(frozen=True)
class Line:
    """One direction of a connection. A lost packet delays itself and all packets behind it until it
    is sent again."""

    latency_seconds: float
    jitter_seconds: float
    bytes_per_second: float
    lost_share: float
    resent_after_seconds: float = 0.4


class SlowProxy(Proxy):
    """Forwards each packet when it is due. The same seed loses the same packets."""

    def __init__(self, target_port: int, line: Line, seed: int = 1) -> None:
        super().__init__(target_port)
        self._line = line
        self._luck = random.Random(seed)
        self.lost = 0

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        *_others: object,
    ) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        while data := await source.read(SEGMENT_BYTES):
            await _at(loop.time() + len(data) / self._line.bytes_per_second)
            # Later than the one before it: timers for the same moment have no order.
            due = max(due + APART_SECONDS, loop.time() + self._delay())
            loop.call_at(due, _deliver, target, data)
        await _at(due)

    def _delay(self) -> float:
        delay = self._line.latency_seconds + self._luck.random() * self._line.jitter_seconds
        if self._luck.random() < self._line.lost_share:
            self.lost += 1
            delay += self._line.resent_after_seconds
        return delay


def _deliver(target: asyncio.StreamWriter, data: bytes) -> None:
    if not target.transport.is_closing():
        target.write(data)


async def _at(time: float) -> None:
    """Wait until the loop's clock shows this time."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    timer = loop.call_at(time, reached.set_result, None)
    try:
        await reached
    finally:
        timer.cancel()
