"""Service Bus as a plain messenger: its places, its messages, and its troubles."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.domain.limits import BODIES_WAITING_MAX, MESSAGE_BODY_BYTES_MAX
from holdfast.messengers import Hint, Seam, ServiceBus, ServiceBusEscort
from holdfast.servicebus_local import QueueOptions
from holdfast.servicebus_local.server import KEY
from holdfast.wakeups.registry import make_messengers
from tests.support.postgres import free_port
from tests.support.processes import wait_until
from tests.support.running import QUICK, seen_events, working
from tests.support.servicebus import StartBus

pytestmark = pytest.mark.heavy

REAL = "HOLDFAST_TEST_SERVICEBUS_CONN"  # of a namespace, and of an empty queue by EntityPath
QUEUE = "jobs"
PLACE = "servicebus://app:key%2Fwith%3D@orders.servicebus.windows.net/jobs"


@asynccontextmanager
async def used(messenger: ServiceBus) -> AsyncIterator[ServiceBus]:
    messenger.connect()
    try:
        yield messenger
    finally:
        await messenger.close()


async def is_away(messenger: ServiceBus) -> str:
    await wait_until(lambda: messenger.status().because, lambda: f"{messenger.status()}")
    return messenger.status().because or ""


async def test_a_message_is_gone_when_it_has_arrived(local_url: str, servicebus: StartBus) -> None:
    bus = servicebus({QUEUE: QueueOptions()})
    messenger = ServiceBus(bus.connection_string, queue=QUEUE)
    hf = Holdfast(local_url, messengers=[messenger], **QUICK)
    gate = asyncio.Event()

    @hf.job
    async def wait() -> None:
        await gate.wait()

    async with hf, working(hf):
        await wait_until(lambda: messenger.status().live, "live")
        job = await wait.enqueue()
        await wait_until(lambda: messenger.status().heard > 1, "heard")
        assert bus.messages(QUEUE) == []
        gate.set()
        await hf.result(job)


async def test_a_payload_that_is_too_large_travels_as_the_id_alone(servicebus: StartBus) -> None:
    """Too large for a message anywhere, and too large for this broker."""
    small = 20_000
    bus = servicebus({QUEUE: QueueOptions(message_bytes_max=small)})
    sizes = {uuid4(): size for size in (10, small + 1, MESSAGE_BODY_BYTES_MAX + 1)}

    def compose(hint: Hint) -> bytes:
        return json.dumps({"job_id": str(hint.job_id), "x": "x" * sizes[hint.job_id]}).encode()

    messenger = ServiceBus(bus.connection_string, queue=QUEUE, compose=compose)
    async with used(messenger):
        messenger.post([Hint(job_id, "default") for job_id in sizes])
        await wait_until(lambda: len(bus.messages(QUEUE)) == 3, "sent")
    found = [json.loads(each.body) for each in bus.messages(QUEUE)]
    assert [each["job_id"] for each in found] == [*map(str, sizes)]
    assert [len(each.get("x", "")) for each in found] == [10, 0, 0]


@pytest.mark.parametrize("fails", ["raises", "returns text"])
async def test_a_body_that_can_not_be_composed_is_left_out_and_fails_no_enqueue(
    local_url: str, servicebus: StartBus, fails: str
) -> None:
    bus = servicebus({QUEUE: QueueOptions()})

    def compose(hint: Hint) -> bytes | None:
        if fails == "raises":
            raise ValueError("no such order")
        return "text"  # type: ignore[return-value]

    hf = Holdfast(
        local_url,
        messengers=[ServiceBus(bus.connection_string, queue=QUEUE, compose=compose)],
        **QUICK,
    )

    @hf.job
    async def note() -> None: ...

    async with seen_events() as seen, hf:
        job = await note.enqueue()
        await wait_until(lambda: bus.messages(QUEUE), "sent")
    (message,) = bus.messages(QUEUE)
    assert json.loads(message.body) == {"job_id": str(job.id)}
    (told,) = seen.named("message_not_composed")
    assert told.fields == {"job_id": job.id, "messenger": "servicebus"}


async def test_few_bodies_wait_for_a_broker_that_is_away(servicebus: StartBus) -> None:
    bus = servicebus({QUEUE: QueueOptions()})
    await asyncio.to_thread(bus.stop)
    composed: list[Hint] = []

    def compose(hint: Hint) -> bytes:
        composed.append(hint)
        return json.dumps({"job_id": str(hint.job_id)}).encode()

    messenger = ServiceBus(bus.connection_string, queue=QUEUE, compose=compose)
    async with used(messenger):
        await is_away(messenger)
        for _ in range(2 * BODIES_WAITING_MAX):
            messenger.post([Hint(uuid4(), "default")])
        assert len(composed) <= BODIES_WAITING_MAX + 1
        await asyncio.to_thread(bus.start)
        await wait_until(
            lambda: len(bus.messages(QUEUE)) == 2 * BODIES_WAITING_MAX,
            lambda: f"{messenger.status()}",
        )


async def test_a_broker_that_is_stopped_is_reported_once_and_used_when_it_is_back(
    local_url: str, servicebus: StartBus
) -> None:
    bus = servicebus({QUEUE: QueueOptions()})
    messenger = ServiceBus(bus.connection_string, queue=QUEUE)
    hf = Holdfast(local_url, messengers=[messenger], **QUICK)
    done: list[int] = []

    @hf.job
    async def note(number: int) -> None:
        done.append(number)

    async with seen_events() as seen, hf, working(hf):
        await note.enqueue(1)
        await wait_until(lambda: messenger.status().live, "live")
        await asyncio.to_thread(bus.stop)
        await seen.first("messenger_lost")
        await note.enqueue(2)
        await wait_until(lambda: len(done) == 2, "done by polling")
        (worker,) = await hf.workers.list()
        assert worker.messengers[0].name == "servicebus"
        await asyncio.to_thread(bus.start)
        await seen.first("messenger_restored")
        heard = messenger.status().heard

        async def hears() -> bool:
            await note.enqueue(3)
            return messenger.status().heard > heard + 1

        await wait_until(hears, lambda: f"heard: {messenger.status()}")
    assert len(seen.named("messenger_lost")) == 1


async def test_a_queue_that_does_not_exist_is_named(servicebus: StartBus) -> None:
    bus = servicebus({QUEUE: QueueOptions()})
    async with used(ServiceBus(bus.connection_string, queue="other")) as messenger:
        assert "404" in await is_away(messenger)


async def test_the_key_is_never_shown(
    local_url: str, servicebus: StartBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = servicebus({QUEUE: QueueOptions()})
    wrong = "wrong-key-that-nobody-may-see"
    connection_string = bus.connection_string.replace(KEY.key, wrong)
    places = [connection_string, connection_string.replace(str(bus.port), str(free_port()))]
    with caplog.at_level(logging.DEBUG):
        for place in places:
            messenger = ServiceBusEscort(place, queue=QUEUE)
            hf = Holdfast(local_url, messengers=[messenger], **QUICK)

            @hf.job
            async def nothing() -> None: ...

            async with hf, working(hf):
                await nothing.enqueue()
                because = await is_away(messenger)
                shown = f"{because} {messenger.status()} {hf.settings} {vars(messenger)}"
                assert wrong not in shown
    assert caplog.records
    for record in caplog.records:
        if record.name.startswith("holdfast"):
            assert wrong not in f"{record.getMessage()} {record.__dict__} {record.exc_text}"


def test_a_url_says_the_mode() -> None:
    (plain,) = make_messengers(PLACE, Seam())
    (led,) = make_messengers(f"{PLACE}?broker_led=true&lock_renew_seconds=20", Seam())
    assert type(plain) is ServiceBus
    assert type(led) is ServiceBusEscort
    for messenger in (plain, led):
        address = "servicebus://orders.servicebus.windows.net/jobs"
        assert messenger.status().address == address


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("servicebus://", "a Service Bus URL looks like"),
        ("servicebus://orders.servicebus.windows.net/jobs", "a Service Bus URL looks like"),
        ("servicebus://app:secret@orders/", "a Service Bus URL looks like"),
        ("servicebus://app:sec/ret@orders/jobs", "a Service Bus URL looks like"),
        (f"{PLACE}?sessions=true", "'sessions' is not an option"),
        (f"{PLACE}?broker_led=perhaps", "broker_led must be true or false"),
        (f"{PLACE}?lock_renew_seconds=20", "no effect without broker_led=true"),
        (f"{PLACE}?broker_led=true&lock_renew_seconds=soon", "must be a number"),
        (f"{PLACE}?broker_led=true&lock_renew_seconds=301", "at most 300 seconds"),
    ],
)
def test_a_url_that_means_nothing_is_refused_without_its_key(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        make_messengers(url, Seam())
    for part in ("secret", "sec/ret", "with"):
        assert part not in str(caught.value).replace("without", "")


WHOLE = (
    "Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey=secret"
)


@pytest.mark.parametrize(
    ("connection_string", "queue", "told"),
    [
        ("", QUEUE, "a connection string of Service Bus looks like"),
        ("secret", QUEUE, "a connection string of Service Bus looks like"),
        ("Endpoint=sb://orders/", QUEUE, "a connection string of Service Bus looks like"),
        (WHOLE.replace("sb://", ""), QUEUE, "a connection string of Service Bus looks like"),
        (f"{WHOLE};Password=secret", QUEUE, "a connection string of Service Bus looks like"),
        (WHOLE, None, "name the queue"),
        (f"{WHOLE};EntityPath=bills", QUEUE, "is for the queue 'bills'"),
    ],
)
def test_a_connection_string_that_is_not_whole_is_refused_without_its_key(
    connection_string: str, queue: str | None, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        ServiceBus(connection_string, queue=queue)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value)


@pytest.mark.skipif(not os.environ.get(REAL), reason=f"{REAL} names no namespace")
@pytest.mark.parametrize("make", [ServiceBus, ServiceBusEscort])
async def test_a_real_namespace_carries_jobs_in_both_modes(
    local_url: str, make: type[ServiceBus]
) -> None:
    """Opt-in. The queue must be empty, without sessions, and nobody else's."""
    messenger = make(os.environ[REAL])
    hf = Holdfast(local_url, messengers=[messenger], poll_seconds=1000)

    @hf.job
    async def double(number: int) -> int:
        return 2 * number

    async with hf, working(hf):
        await wait_until(lambda: messenger.status().live, lambda: f"{messenger.status()}")
        jobs = [await double.enqueue(number) for number in range(10)]
        for number, job in enumerate(jobs):
            assert await hf.result(job, 60) == 2 * number
        await wait_until(lambda: messenger.status().heard > 1, lambda: f"{messenger.status()}")
