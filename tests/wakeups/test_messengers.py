"""The conformance suite for wake-ups, on every way to wake a worker."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast.messengers import Seam, ServiceBus, ServiceBusEscort
from holdfast.servicebus_local import QueueOptions
from holdfast.testing.messengers import (
    MessengerConformance,
    PollingConformance,
    WakeupConformance,
    Wiring,
)
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.registry import make_messengers
from tests.support.proxy import Proxy
from tests.support.rabbitmq import Names
from tests.support.servicebus import StartBus

pytestmark = pytest.mark.heavy


class TestPolling(PollingConformance):
    @pytest.fixture
    def wiring(self, store_url: str) -> Wiring:
        return Wiring(store_url)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
class TestNotify(WakeupConformance):
    @pytest.fixture
    async def wiring(self, store_url: str) -> Wiring:
        async def cut() -> None:
            administrator = await asyncpg.connect(store_url)
            await administrator.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
            await administrator.close()

        return Wiring(store_url, own_wakeups=True, cut=cut)


class TestLocalSignals(WakeupConformance):
    @pytest.fixture
    def wiring(self, local_url: str) -> Wiring:
        async def cut() -> None:
            path = local_url.removeprefix("sqlite:///")
            await asyncio.to_thread(shutil.rmtree, LocalSignals(path).directory, True)

        return Wiring(local_url, own_wakeups=True, cut=cut)


@pytest.fixture
def written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of somebody else, whose messenger is found by its entry point."""
    installed = tmp_path / "blackboard-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: blackboard\nVersion: 1.0\n")
    factory = "tests.support.blackboard:make_messenger"
    (installed / "entry_points.txt").write_text(f"[holdfast.messengers]\nblackboard = {factory}\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("tests.support.blackboard", None)


@pytest.mark.usefixtures("written_elsewhere")
class TestBlackboard(MessengerConformance):
    @pytest.fixture
    def wiring(self, local_url: str) -> Wiring:
        from tests.support import blackboard

        async def cut() -> None:
            blackboard.cut("conformance")

        return Wiring(
            local_url, lambda: make_messengers("blackboard://conformance", Seam()), cut=cut
        )


@pytest.fixture
def road(rabbitmq: Names) -> Iterator[Proxy]:
    """The way to RabbitMQ, which can be cut."""
    with Proxy(urlsplit(rabbitmq.url).port or 5672) as proxy:
        yield proxy


def through(road: Proxy, url: str) -> str:
    split = urlsplit(url)
    user, _, _ = split.netloc.rpartition("@")
    return urlunsplit(split._replace(netloc=f"{user}@127.0.0.1:{road.port}"))


class TestRabbitMQ(MessengerConformance):
    @pytest.fixture
    def wiring(self, local_url: str, rabbitmq: Names, road: Proxy) -> Wiring:
        async def cut() -> None:
            await asyncio.to_thread(road.cut)

        url = through(road, rabbitmq.url)
        return Wiring(local_url, lambda: [rabbitmq.messenger(url)], cut=cut)


class TestServiceBus(MessengerConformance):
    @pytest.fixture
    def wiring(self, local_url: str, servicebus: StartBus) -> Wiring:
        bus = servicebus({"jobs": QueueOptions()})

        async def cut() -> None:
            await asyncio.to_thread(bus.cut)

        return Wiring(local_url, lambda: [ServiceBus(bus.connection_string, queue="jobs")], cut=cut)


class TestServiceBusEscort(WakeupConformance):
    """Broker-led: only workers receive, so a messenger by itself hears nothing."""

    @pytest.fixture
    def wiring(self, local_url: str, servicebus: StartBus) -> Wiring:
        bus = servicebus({"jobs": QueueOptions(lock_seconds=5.0)})

        async def cut() -> None:
            await asyncio.to_thread(bus.cut)

        return Wiring(
            local_url, lambda: [ServiceBusEscort(bus.connection_string, queue="jobs")], cut=cut
        )


@pytest.mark.usefixtures("written_elsewhere")
class TestSeveral(WakeupConformance):
    """Two messengers and the database's own wake-ups: each job is announced three times."""

    @pytest.fixture
    def wiring(self, store_url: str, rabbitmq: Names, road: Proxy) -> Wiring:
        from tests.support import blackboard

        async def cut() -> None:
            blackboard.cut("several")
            await asyncio.to_thread(road.cut)

        url = through(road, rabbitmq.url)

        return Wiring(
            store_url,
            lambda: [
                rabbitmq.messenger(url),
                *make_messengers("blackboard://several", Seam()),
            ],
            cut=cut,
            own_wakeups=True,
        )
