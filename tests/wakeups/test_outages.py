"""A broker that is stopped and started again and again, while jobs keep coming."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.messengers import BrokerMessenger, ServiceBus, ServiceBusEscort
from holdfast.servicebus_local import QueueOptions
from tests.support.processes import wait_until
from tests.support.rabbitmq import Names, Node
from tests.support.running import working
from tests.support.servicebus import LOST_SOCKETS

pytestmark = [pytest.mark.heavy, pytest.mark.slow, *LOST_SOCKETS]

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


class Outages(NamedTuple):
    """A broker that can be stopped, each time in another way, and started."""

    messenger: BrokerMessenger
    stop: Callable[[int], None]
    start: Callable[[], None]


@pytest.fixture(params=["rabbitmq", "servicebus", "servicebus, broker-led"])
def outages(request: pytest.FixtureRequest) -> Outages:
    if request.param == "rabbitmq":
        node: Node = request.getfixturevalue("own_rabbitmq")

        def stop(outage: int) -> None:
            (node.kill if outage % 2 else node.stop)()

        def start() -> None:
            node.begin()
            node.await_ready()

        return Outages(Names(node.url).messenger(), stop, start)
    bus = request.getfixturevalue("servicebus")({"jobs": QueueOptions(lock_seconds=5.0)})
    make = ServiceBusEscort if "led" in request.param else ServiceBus
    messenger = make(bus.connection_string, queue="jobs")
    return Outages(messenger, lambda _: bus.stop(), bus.start)


async def test_three_outages_under_load_lose_no_job_and_cost_one_poll_at_most(
    postgres_url: str, outages: Outages
) -> None:
    messenger = outages.messenger
    hf = Holdfast(postgres_url, messengers=[messenger], poll_seconds=POLL_SECONDS)
    await hf.migrate()
    load = Load(hf)
    async with hf, working(hf):
        sending = asyncio.create_task(load.send())
        for outage in range(OUTAGES):
            await wait_until(lambda: messenger.status().live, lambda: f"{messenger.status()}")
            await asyncio.to_thread(outages.stop, outage)
            await wait_until(lambda: messenger.status().because, "the outage is noticed")
            await asyncio.to_thread(outages.start)
        await wait_until(lambda: messenger.status().live, lambda: f"{messenger.status()}")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        # The last one may have been canceled before its commit.
        expected = range(len(load.sent_at) - 1)
        await wait_until(lambda: len(load.done) >= len(expected), lambda: f"{len(load.done)} done")
    assert {load.done[number] for number in expected} == {1}
    assert len(expected) > 100
    assert max(load.waits) < LATE_SECONDS_MAX
