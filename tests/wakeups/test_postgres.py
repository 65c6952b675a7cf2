"""Wake-ups by NOTIFY: what is heard, and that a listener outlives its connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from random import Random
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.domain.job import NewJob
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.wakeups.postgres import Connect, PostgresListener, parse, start_listening
from holdfast.wakeups.protocol import Wakeup
from tests.support.postgres import Databases, Server
from tests.support.processes import WAIT_SECONDS, turn

pytestmark = pytest.mark.both_postgres


class Ear:
    """Hears wake-ups and waits for one of them, whichever job it is about."""

    def __init__(self) -> None:
        self.heard: list[Wakeup] = []
        self._more = asyncio.Event()

    def __call__(self, wakeup: Wakeup) -> None:
        self.heard.append(wakeup._replace(job_id=None))
        self._more.set()

    async def until(self, wakeup: Wakeup) -> list[Wakeup]:
        async with asyncio.timeout(WAIT_SECONDS):
            while wakeup not in self.heard:
                self._more.clear()
                await self._more.wait()
        return self.heard


class Road:
    """A way to a server that can swallow what is sent over it, without a sign."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._swallowing: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def swallow_all(self) -> None:
        """Deliver nothing more over what is connected now; new connections work."""
        self._swallowing |= self._writers

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, far_writer}
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._carry(source, target)))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if target not in self._swallowing:
                    target.write(data)
        if target not in self._swallowing:
            target.close()


def job(queue: str, delay_seconds: float = 0.0) -> NewJob:
    return NewJob(
        id=uuid4(), name="resize", arguments=b"{}", queue=queue, delay_seconds=delay_seconds
    )


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, Seam())
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def road(postgres_url: str) -> AsyncIterator[Road]:
    road = Road(postgres_url)
    await road.open()
    yield road
    await road.close()


async def listen_by(
    url: str,
    notify_url: str,
    heard: Ear,
    check_seconds: float = 10.0,
    connect: Connect | None = None,
) -> PostgresListener | None:
    """Listen to one address and prove it from another."""

    async def notify(payload: str) -> None:
        connection = await asyncpg.connect(notify_url)
        await connection.execute("SELECT pg_notify('holdfast', $1)", payload)
        await connection.close()

    return await start_listening(
        heard,
        connect=connect or partial(asyncpg.connect, url),
        notify=notify,
        random=Random(1),
        address="the server",
        check_seconds=check_seconds,
    )


def test_a_payload_names_a_queue_or_a_job_and_all_else_means_look_everywhere() -> None:
    job_id = UUID("01890000-0000-7000-8000-000000000001")
    assert parse("q:images") == Wakeup(queue="images")
    assert parse(f"j:{job_id}:a:b") == Wakeup(queue="a:b", job_id=job_id)
    assert parse("j:none:images") == Wakeup()
    assert parse("q:a:b") == Wakeup(queue="a:b")
    assert parse(f"c:{job_id}") == Wakeup(canceled=job_id)
    assert parse("c:none") == Wakeup()
    assert parse("") == Wakeup()
    assert parse("from a newer version") == Wakeup()
    assert parse("t:self-test") is None


async def test_one_enqueue_wakes_each_queue_once_and_not_for_what_is_due_later(
    store: PostgresStore,
) -> None:
    ear = Ear()
    listener = await store.listen(ear)
    assert listener is not None
    await store.enqueue([job("a"), job("b"), job("a"), job("later", delay_seconds=60)])
    await store.enqueue([job(f"copied {number % 2}") for number in range(1000)])
    await store.enqueue([job("last")])
    heard = await ear.until(Wakeup(queue="last"))
    await listener.close()
    queues = ["a", "b", "copied 0", "copied 1", "last"]
    assert sorted(heard) == [Wakeup(queue=queue) for queue in queues]


async def test_the_longest_queue_name_fits_into_a_notification(store: PostgresStore) -> None:
    ear = Ear()
    listener = await store.listen(ear)
    assert listener is not None
    name = "\N{GRINNING FACE}" * 200
    await store.enqueue([job(name)])
    await ear.until(Wakeup(queue=name))
    await listener.close()


async def test_a_listener_whose_connection_was_ended_listens_again_and_looks_everywhere(
    store: PostgresStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    listener = await store.listen(ear)
    assert listener is not None
    administrator = await asyncpg.connect(postgres_url)
    ended = await administrator.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    await administrator.close()
    assert len(ended) == 1
    await ear.until(Wakeup())
    await store.enqueue([job("after")])
    await ear.until(Wakeup(queue="after"))
    await listener.close()
    assert [getattr(record.msg, "name", "") for record in caplog.records].count("listen_lost") == 1


async def test_a_listener_whose_connection_is_ended_while_it_begins_listens_again(
    store: PostgresStore, postgres_url: str
) -> None:
    """A worker that boots at that moment goes on, and hears of new jobs."""
    administrator = await asyncpg.connect(postgres_url)
    connections: list[asyncpg.Connection] = []

    async def connect() -> asyncpg.Connection:
        made = await asyncpg.connect(postgres_url)
        if not connections:
            await administrator.execute("SELECT pg_terminate_backend($1)", made.get_server_pid())
        connections.append(made)
        return made

    ear = Ear()
    listener = await listen_by(postgres_url, postgres_url, ear, connect=connect)
    assert listener is not None
    await ear.until(Wakeup())
    await store.enqueue([job("after")])
    await ear.until(Wakeup(queue="after"))
    await listener.close()
    await administrator.close()


async def test_a_listener_that_loses_its_connection_just_then_can_be_closed(
    postgres_url: str,
) -> None:
    """Its worker, and the process, would never end."""
    for turns in range(8):
        made: list[asyncpg.Connection] = []

        async def connect(made: list[asyncpg.Connection] = made) -> asyncpg.Connection:
            made.append(await asyncpg.connect(postgres_url))
            return made[-1]

        listener = await listen_by(postgres_url, postgres_url, Ear(), connect=connect)
        assert listener is not None
        made[0].terminate()
        for _ in range(turns):
            await turn()
        closing = asyncio.create_task(listener.close())
        async with asyncio.timeout(WAIT_SECONDS):
            await closing


async def test_a_listener_notices_a_connection_that_is_silently_gone(
    store: PostgresStore, postgres_url: str, road: Road
) -> None:
    ear = Ear()
    database = urlsplit(postgres_url).path
    url = f"postgresql://postgres@127.0.0.1:{road.port}{database}"
    listener = await listen_by(url, postgres_url, ear, check_seconds=1)
    assert listener is not None
    road.swallow_all()
    await ear.until(Wakeup())
    await store.enqueue([job("after")])
    await ear.until(Wakeup(queue="after"))
    await listener.close()


async def test_where_notifications_do_not_arrive_there_is_no_listener_but_a_warning(
    postgres_url: str,
    postgres_databases: Callable[[str], Databases],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # What is notified in another database never arrives, as behind a pooler in transaction mode.
    elsewhere = urlsplit(postgres_url)._replace(path="/postgres").geturl()
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert await listen_by(postgres_url, elsewhere, Ear()) is None
    [record] = caplog.records
    assert getattr(record.msg, "name", "") == "listen_unavailable"
    assert "only by polling" in record.getMessage()


async def test_a_listener_survives_a_restart_of_its_server(own_postgres: Server) -> None:
    store = PostgresStore(own_postgres.url("postgres"), Seam())
    await store.migrate()
    ear = Ear()
    listener = await store.listen(ear)
    assert listener is not None
    await asyncio.to_thread(own_postgres.stop)
    await asyncio.to_thread(own_postgres.start)
    await ear.until(Wakeup())
    await store.enqueue([job("after")])
    await ear.until(Wakeup(queue="after"))
    await listener.close()
    await store.close()
