"""RabbitMQ in trouble: one warning, polling goes on, and it recovers by itself."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from aio_pika import Message, connect
from aio_pika.abc import AbstractChannel

from holdfast import ConfigurationError, Holdfast
from holdfast.messengers import Hint, MessengerStatus, RabbitMQ, Seam
from holdfast.wakeups.rabbitmq import read
from holdfast.wakeups.registry import make_messengers
from tests.support.postgres import free_port
from tests.support.processes import wait_until
from tests.support.proxy import Proxy
from tests.support.rabbitmq import PASSWORD, Names, Node
from tests.support.running import Seen, seen_events, working

pytestmark = pytest.mark.heavy

ENQUEUE_SECONDS_MAX = 2.0  # a commit on a busy machine; a broker in trouble costs 10 s or more


class Scene:
    """A worker that polls and listens, and a sender, in one process."""

    def __init__(self, hf: Holdfast, messenger: RabbitMQ, seen: Seen) -> None:
        self.hf = hf
        self.messenger = messenger
        self.seen = seen
        self.done: list[int] = []

        @hf.job(name="note")
        async def note(number: int) -> None:
            self.done.append(number)

        self._note = note

    @property
    def status(self) -> MessengerStatus:
        return self.messenger.status()

    async def is_live(self) -> None:
        await wait_until(lambda: self.status.live, lambda: f"live: {self.status}")

    async def is_away(self) -> None:
        await wait_until(lambda: self.status.because, lambda: f"away: {self.status}")

    async def does(self, jobs: int) -> None:
        """Enqueue jobs without a delay; they are done, each once."""
        loop = asyncio.get_running_loop()
        first = len(self.done)
        for number in range(first, first + jobs):
            started = loop.time()
            await self._note.enqueue(number)
            assert loop.time() - started < ENQUEUE_SECONDS_MAX
        await wait_until(lambda: len(self.done) >= first + jobs, lambda: f"done: {self.done}")
        assert sorted(self.done) == [*range(first + jobs)]

    async def hears(self) -> None:
        """Enqueue jobs until a message about one arrives."""
        before = self.status.heard

        async def has_heard() -> bool:
            await self.does(1)
            return self.status.heard > before + 1

        await wait_until(has_heard, lambda: f"heard: {self.status}")

    @property
    def warnings(self) -> int:
        return len(self.seen.named("messenger_lost"))


@asynccontextmanager
async def scene_of(database: str, messenger: RabbitMQ) -> AsyncIterator[Scene]:
    hf = Holdfast(database, messengers=[messenger], poll_seconds=0.3, grace_seconds=0.0)
    async with seen_events() as seen, hf:
        scene = Scene(hf, messenger, seen)
        async with working(hf):
            yield scene


@asynccontextmanager
async def channel_at(url: str) -> AsyncIterator[AbstractChannel]:
    connection = await connect(url)
    async with connection:
        yield await connection.channel()


@pytest.fixture
def names(own_rabbitmq: Node) -> Names:
    return Names(own_rabbitmq.url)


async def test_a_broker_that_is_absent_at_start_is_used_when_it_comes(
    local_url: str, names: Names, own_rabbitmq: Node
) -> None:
    with Proxy(free_port()) as road:
        messenger = names.messenger(own_rabbitmq.url_at(road.port))
        async with scene_of(local_url, messenger) as scene:
            await scene.is_away()
            await scene.does(5)
            await wait_until(lambda: road.refused > 5, "tried again")
            assert scene.warnings == 1
            await asyncio.to_thread(road.switch, own_rabbitmq.port)
            await scene.is_live()
            await scene.hears()
            assert len(scene.seen.named("messenger_restored")) == 1


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_broker_that_is_restarted_is_used_again(
    local_url: str, names: Names, own_rabbitmq: Node, how: str
) -> None:
    async with scene_of(local_url, names.messenger()) as scene:
        await scene.does(1)
        await scene.is_live()
        await scene.hears()
        await asyncio.to_thread(getattr(own_rabbitmq, how))
        await scene.is_away()
        await scene.does(5)
        own_rabbitmq.begin()
        await asyncio.to_thread(own_rabbitmq.await_ready)
        await scene.is_live()
        await scene.hears()
        assert scene.warnings == 1


async def test_a_deleted_queue_and_exchange_are_declared_again(
    local_url: str, rabbitmq: Names
) -> None:
    async with scene_of(local_url, rabbitmq.messenger()) as scene:
        await scene.does(1)
        await scene.is_live()
        await scene.hears()
        async with channel_at(rabbitmq.url) as channel:
            await channel.queue_delete(rabbitmq.queue)
            await channel.exchange_delete(rabbitmq.exchange)
        await scene.does(3)
        await wait_until(lambda: scene.warnings, "noticed")
        await scene.is_live()
        await scene.hears()


async def test_a_half_open_connection_is_noticed_and_made_again(
    local_url: str, rabbitmq_url: str, names: Names, own_rabbitmq: Node
) -> None:
    with Proxy(own_rabbitmq.port) as road:
        messenger = names.messenger(own_rabbitmq.url_at(road.port))
        async with scene_of(local_url, messenger) as scene:
            await scene.does(1)
            await scene.is_live()
            await asyncio.to_thread(road.stall)
            await scene.does(5)
            await scene.is_away()
            await asyncio.to_thread(road.resume)
            await scene.is_live()
            await scene.hears()


@pytest.mark.parametrize(
    ("alarm", "calm"),
    [
        (("set_disk_free_limit", "100000GB"), ("set_disk_free_limit", "50MB")),
        (("set_vm_memory_high_watermark", "0"), ("set_vm_memory_high_watermark", "0.4")),
    ],
)
async def test_a_broker_that_is_full_stops_messages_but_no_job(
    local_url: str, names: Names, own_rabbitmq: Node, alarm: list[str], calm: list[str]
) -> None:
    async with scene_of(local_url, names.messenger()) as scene:
        await scene.does(1)
        await scene.is_live()
        await asyncio.to_thread(own_rabbitmq.control, *alarm)
        try:
            await scene.does(5)
            await scene.is_away()
            await scene.does(5)
        finally:
            await asyncio.to_thread(own_rabbitmq.control, *calm)
        await scene.is_live()
        await scene.hears()
        assert scene.warnings == 1


async def test_a_queue_that_was_declared_differently_is_reported_once(
    local_url: str, rabbitmq: Names
) -> None:
    async with channel_at(rabbitmq.url) as channel:
        await channel.declare_queue(rabbitmq.queue, durable=False)
    async with scene_of(local_url, rabbitmq.messenger()) as scene:
        lost = await scene.seen.first("messenger_lost")
        assert "PRECONDITION_FAILED" in str(lost)
        await scene.does(5)
        async with channel_at(rabbitmq.url) as channel:
            await channel.queue_delete(rabbitmq.queue)
        await scene.is_live()
        assert scene.warnings == 1


STRANGE = [
    b"",
    b"\xff\x00",
    b"{",
    b"[]",
    b"null",
    b"17",
    b'"job_id"',
    b"{}",
    b'{"job_id": null}',
    b'{"job_id": 7}',
    b'{"job_id": "a job"}',
    b'{"job_id": {"job_id": []}}',
    b'{"job_id": "' + b"0" * 100_000 + b'"}',
    b"[" * 100_000,
    json.dumps({"job_id": str(uuid4()), "padding": "x" * 10_000_000}).encode(),
]


def test_what_names_no_job_is_no_wakeup() -> None:
    assert [read(body, {}) for body in STRANGE] == [None] * len(STRANGE)


def test_strange_headers_are_ignored() -> None:
    job_id = uuid4()
    body = json.dumps({"job_id": str(job_id)}).encode()
    for headers in (None, {}, {"x-holdfast-queue": 7}, {"x-holdfast-queue": ["a"]}):
        found = read(body, headers)
        assert found is not None
        assert (found.job_id, found.queue) == (job_id, None)


async def test_a_message_is_the_id_of_its_job(local_url: str, rabbitmq: Names) -> None:
    async with (
        scene_of(local_url, rabbitmq.messenger()) as scene,
        channel_at(rabbitmq.url) as channel,
    ):
        await scene.hears()
        other = await channel.declare_queue(exclusive=True)
        await other.bind(rabbitmq.exchange, "jobs")
        await scene.does(1)
        bodies: list[bytes] = []

        async def arrives() -> bool:
            message = await other.get(fail=False)
            if message is not None:
                bodies.append(message.body)
            return message is not None

        await wait_until(arrives, "a message")
        (newest, *_) = (await scene.hf.jobs.list()).jobs
        assert json.loads(bodies[0]) == {"job_id": str(newest.id)}


async def test_malformed_foreign_huge_and_duplicate_messages_are_ignored(
    local_url: str, rabbitmq: Names
) -> None:
    async with scene_of(local_url, rabbitmq.messenger()) as scene:
        await scene.does(1)
        await scene.is_live()
        done = await scene.hf.jobs.list()
        known = [json.dumps({"job_id": str(job.id)}).encode() for job in done.jobs]
        unknown = [json.dumps({"job_id": str(uuid4())}).encode()]
        async with channel_at(rabbitmq.url) as channel:
            exchange = await channel.get_exchange(rabbitmq.exchange)
            for body in (*STRANGE, *known * 20, *unknown * 20):
                await exchange.publish(Message(body), "jobs")
        await scene.hears()
        await scene.does(5)
        assert scene.seen.named("messenger_lost") == []
        async with channel_at(rabbitmq.url) as channel:
            left = await channel.declare_queue(rabbitmq.queue, durable=True, passive=True)
            assert left.declaration_result.message_count == 0


async def test_the_password_is_never_shown(
    local_url: str, own_rabbitmq: Node, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "wrong-password"
    urls = [
        own_rabbitmq.url_at(free_port()),
        own_rabbitmq.url.replace(PASSWORD, wrong),
        own_rabbitmq.url.replace("%2F", "no-such-host"),
    ]
    with caplog.at_level(logging.DEBUG):
        for url in urls:
            async with scene_of(local_url, RabbitMQ(url)) as scene:
                await scene.is_away()
                shown = f"{scene.status} {scene.messenger.status().because} {scene.hf.settings}"
                assert PASSWORD not in shown
                assert wrong not in shown
    assert caplog.records
    for record in caplog.records:
        text = f"{record.getMessage()} {record.__dict__} {record.exc_text}"
        assert PASSWORD not in text, record
        assert wrong not in text, record


@pytest.mark.parametrize(
    "url", ["amqp://", "amqp://user:pass/word@host/", "amqp://user:secret@host:port/"]
)
def test_a_url_without_a_host_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="a RabbitMQ URL looks like") as caught:
        make_messengers(url, Seam())
    for part in ("word", "secret"):
        assert part not in str(caught.value).replace("password", "")


def test_an_unknown_option_of_the_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'vhost' is not an option"):
        make_messengers("amqp://host/?vhost=x", Seam())


async def test_hints_that_a_broker_never_takes_are_dropped_and_counted(names: Names) -> None:
    messenger = names.messenger(f"amqp://127.0.0.1:{free_port()}/")
    for _ in range(30):
        messenger.post([Hint(uuid4(), "default") for _ in range(100)])
    await messenger.close()
    status = messenger.status()
    assert status.sent == 0
    assert status.dropped == 3000
