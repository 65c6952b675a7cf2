"""A broker that is stopped and started again and again, while jobs keep coming."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from holdfast import Holdfast
from tests.support.processes import wait_until
from tests.support.rabbitmq import Names, Node
from tests.support.running import working

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

OUTAGES = 3
PAUSE_SECONDS = 0.02
POLL_SECONDS = 1.0
LATE_SECONDS_MAX = POLL_SECONDS + 1.0


class Load:
    """Jobs at a steady pace, and how long each waited for its start."""

    def __init__(self, hf: Holdfast) -> None:
        self.done: Counter[int] = Counter()
        self.waits: list[float] = []
        self.sent_at: list[float] = []

        @hf.job(name="measure")
        async def measure(number: int) -> None:
            self.done[number] += 1
            self.waits.append(time.monotonic() - self.sent_at[number])

        self._measure = measure

    async def send(self) -> None:
        while True:
            self.sent_at.append(time.monotonic())
            await self._measure.enqueue(len(self.sent_at) - 1)
            await asyncio.sleep(PAUSE_SECONDS)


async def test_three_outages_under_load_lose_no_job_and_cost_one_poll_at_most(
    postgres_url: str, own_rabbitmq: Node
) -> None:
    messenger = Names(own_rabbitmq.url).messenger()
    hf = Holdfast(postgres_url, messengers=[messenger], poll_seconds=POLL_SECONDS)
    await hf.migrate()
    load = Load(hf)
    async with hf, working(hf):
        sending = asyncio.create_task(load.send())
        for outage in range(OUTAGES):
            await wait_until(lambda: messenger.status().live, lambda: f"{messenger.status()}")
            await asyncio.to_thread(own_rabbitmq.kill if outage % 2 else own_rabbitmq.stop)
            await wait_until(lambda: messenger.status().because, "the outage is noticed")
            own_rabbitmq.begin()
            await asyncio.to_thread(own_rabbitmq.await_ready)
        await wait_until(lambda: messenger.status().live, lambda: f"{messenger.status()}")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        # The last one may have been canceled before its commit.
        expected = range(len(load.sent_at) - 1)
        await wait_until(lambda: len(load.done) >= len(expected), lambda: f"{len(load.done)} done")
    assert {load.done[number] for number in expected} == {1}
    assert len(expected) > 100
    assert max(load.waits) < LATE_SECONDS_MAX
