"""How messengers are: what workers report, and what operators see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast import Check, ConfigurationError, Holdfast, Severity
from holdfast.domain.limits import MESSENGER_TEXT_CHARS_MAX
from holdfast.domain.messenger_overview import messenger_overviews
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.workers import Load, WorkerStatus
from holdfast.testing.conformance.workers import worker
from holdfast.wakeups.status import status_of
from tests.support.api import served
from tests.support.messengers import DOWN, UP, Pigeon
from tests.support.processes import wait_until
from tests.support.running import QUICK
from tests.support.scraping import Scraped
from tests.support.stores import full_store

SECRET = "hunter2"


def make_app(url: str, *pigeons: Pigeon, **settings: Any) -> Holdfast:
    hf = Holdfast(url, messengers=pigeons, **{**QUICK, "renew_seconds": 0.2, **settings})

    @hf.job
    async def resize(image: int) -> None:
        raise NotImplementedError

    return hf


@asynccontextmanager
async def working(hf: Holdfast) -> AsyncIterator[None]:
    running = asyncio.create_task(hf.run_worker())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def reported(hf: Holdfast) -> MessengerStatus | None:
    for each in await hf.workers.list():
        for status in each.messengers:
            return status
    return None


async def test_a_worker_reports_its_messengers_with_every_heartbeat(store_url: str) -> None:
    pigeon = Pigeon(DOWN)
    async with make_app(store_url, pigeon) as hf, working(hf):

        async def is_told(expected: MessengerStatus) -> bool:
            return await reported(hf) == expected

        fallback = f"polling every {hf.settings.poll_seconds:g} s"
        down = msgspec.structs.replace(DOWN, fallback=fallback)
        await wait_until(lambda: is_told(down), "the messenger is down")
        pigeon.now = UP
        await wait_until(lambda: is_told(UP), "the messenger is live")


class Broken(Pigeon):
    def status(self) -> MessengerStatus:
        raise ValueError(f"can't read amqp://app:{SECRET}@broker/")


async def test_a_messenger_that_can_not_tell_is_down_and_names_no_secret() -> None:
    status = status_of(Broken())
    assert (status.name, status.live, status.is_down) == ("pigeon", False, True)
    assert "ValueError" in (status.because or "")
    assert SECRET not in repr(status)


async def test_a_status_is_bounded_and_has_no_secrets() -> None:
    long = msgspec.structs.replace(DOWN, because=f"amqp://app:{SECRET}@broker/ \0" + "x" * 10_000)
    status = status_of(Pigeon(long))
    assert SECRET not in repr(status)
    assert "\0" not in (status.because or "")
    assert len(status.because or "") <= MESSENGER_TEXT_CHARS_MAX


async def report(hf: Holdfast, **by_worker: MessengerStatus) -> None:
    store = await full_store(hf)
    for name, status in by_worker.items():
        await store.register(worker(id=name), Load(messengers=(status,)))


async def test_doctor_says_what_to_do_about_a_messenger_that_is_down(
    hf: Holdfast,
) -> None:
    async def findings() -> list[Any]:
        examined = await hf.examine()
        return [each for each in examined.findings if each.code is Check.MESSENGERS]

    assert await findings() == []
    heard = msgspec.structs.replace(UP, heard_seconds=1.0)
    await report(hf, a=heard, b=heard)
    (found,) = await findings()
    assert found.severity is Severity.OK
    assert "pigeon (pigeon://loft) is live on 2 workers; last message " in found.sentence
    await report(hf, b=msgspec.structs.replace(DOWN, fallback="polling every 2 s"))
    (found,) = await findings()
    assert found.severity is Severity.WARNING
    assert "is down on 1 of 2 workers, for " in found.sentence
    assert ": no wind; fallback: polling every 2 s; last message " in found.sentence
    assert "broker is running" in found.advice
    assert found.facts["down"] == ["b"]


async def test_metrics_tell_of_each_messenger(hf: Holdfast) -> None:
    await report(hf, a=msgspec.structs.replace(UP, heard_seconds=5.0), b=DOWN)
    scraped = Scraped(await hf.metrics())
    assert scraped.value("holdfast_messenger_up", messenger="pigeon") == 0
    last = scraped.value("holdfast_messenger_last_message_seconds", messenger="pigeon")
    assert last is not None
    assert 5 <= last < 60


async def test_metrics_count_the_messages_of_this_process(local_url: str) -> None:
    pigeon = Pigeon()
    async with make_app(local_url, pigeon) as hf:
        for heard in (3, 3, 7):
            pigeon.now = msgspec.structs.replace(UP, heard=heard, sent=2 * heard, dropped=1)
            scraped = Scraped(await hf.metrics())
        assert scraped.value("holdfast_messages_received_total", messenger="pigeon") == 7
        assert scraped.value("holdfast_messages_sent_total", messenger="pigeon") == 14
        assert scraped.value("holdfast_messages_dropped_total", messenger="pigeon") == 1


async def test_the_api_shows_each_messenger(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await report(hf, a=DOWN)
        (found,) = [
            each
            for each in (await client.get("/v1/workers")).json()["workers"]
            if each["id"] == "a"
        ]
        assert found["messengers"] == [msgspec.to_builtins(DOWN)]


async def test_the_api_stays_ready_without_a_messenger_and_names_the_fallback(
    store_url: str,
) -> None:
    pigeon = Pigeon(DOWN)
    async with served(make_app(store_url, pigeon, poll_seconds=3)) as client:
        assert pigeon.connected
        ready = await client.get("/v1/health/ready")
        body = {"status": "ready", "fallback": "polling every 3 s"}
        assert (ready.status_code, ready.json()) == (200, body)


async def test_the_api_is_not_ready_without_a_messenger_that_is_required(store_url: str) -> None:
    pigeon = Pigeon(DOWN)
    async with served(make_app(store_url, pigeon, messengers_required=True)) as client:
        answer = await client.get("/v1/health/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "QUEUE_UNAVAILABLE")
        assert "no wind" not in answer.text
        pigeon.now = UP

        async def is_ready() -> bool:
            return (await client.get("/v1/health/ready")).status_code == 200

        await wait_until(is_ready, "the service is ready")


def test_messengers_can_not_be_required_if_there_are_none(local_url: str) -> None:
    with pytest.raises(ConfigurationError, match="there are no messengers"):
        Holdfast(local_url, messengers_required=True)


async def test_a_lost_worker_and_an_unused_messenger_say_nothing(
    hf: Holdfast,
) -> None:
    await report(hf, a=DOWN)
    (found,) = await hf.workers.list()
    assert len(messenger_overviews([found])) == 1
    lost: WorkerStatus = msgspec.structs.replace(found, lost=True)
    unused = msgspec.structs.replace(found, messengers=(msgspec.structs.replace(DOWN, used=False),))
    assert messenger_overviews([lost, unused]) == []
