"""`/livez` and `/readyz` of a worker, on the port of its metrics."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from holdfast import StoreUnavailable
from holdfast.observability.metrics import CLAIMING, MESSENGERS_DOWN, Metrics
from holdfast.worker.probes import CACHE_SECONDS, Answer, Probes
from tests.promises.stage import Stage, both_stores
from tests.support.postgres import free_port
from tests.support.processes import turn, wait_until
from tests.support.scraping import get


class Database:
    def __init__(self) -> None:
        self.is_down = False
        self.asked = 0
        self.now = 100.0

    async def ask(self) -> None:
        self.asked += 1
        if self.is_down:
            raise StoreUnavailable("down")

    def probes(
        self, metrics: Metrics, workers: int = 1, *, messengers_required: bool = False
    ) -> Probes:
        return Probes(
            metrics,
            self.ask,
            lambda: self.now,
            workers=workers,
            blocked_seconds_max=30,
            poll_seconds=1.5,
            messengers_required=messengers_required,
        )


OK = Answer(True, "ok")


def not_ok(text: str) -> Answer:
    return Answer(False, text)


async def test_ready_means_that_every_worker_claims_and_the_database_answers() -> None:
    metrics, database = Metrics(), Database()
    probes = database.probes(metrics, workers=2)
    assert await probes.ready() == not_ok("0 of 2 workers are claiming jobs")
    with metrics.measuring(lambda: {CLAIMING.name: 1}):
        assert await probes.ready() == not_ok("1 of 2 workers are claiming jobs")
        with metrics.measuring(lambda: {CLAIMING.name: 1}):
            assert await probes.ready() == OK
            database.is_down = True
            database.now += CACHE_SECONDS
            assert await probes.ready() == not_ok("the database does not answer")


async def test_a_messenger_that_is_down_matters_only_if_it_is_required() -> None:
    metrics, database = Metrics(), Database()
    easy, strict = database.probes(metrics), database.probes(metrics, messengers_required=True)
    with metrics.measuring(lambda: {CLAIMING.name: 1}):
        with metrics.measuring(lambda: {MESSENGERS_DOWN.name: 1}):
            fallback = "ok; a messenger is down, fallback: polling every 1.5 s"
            assert await easy.ready() == Answer(True, fallback)
            text = "QUEUE_UNAVAILABLE: a messenger is down; see holdfast doctor"
            assert await strict.ready() == not_ok(text)
        assert await strict.ready() == await easy.ready() == OK


async def test_many_probes_ask_the_database_once_a_second() -> None:
    metrics, database = Metrics(), Database()
    probes = database.probes(metrics)
    with metrics.measuring(lambda: {CLAIMING.name: 1}):
        for _ in range(10):
            assert await probes.ready() == OK
        assert database.asked == 1


async def test_live_means_that_the_event_loop_has_turned_lately() -> None:
    database = Database()
    probes = database.probes(Metrics())
    assert await probes.live() == OK
    database.now += 31
    assert await probes.live() == not_ok("the event loop has been blocked for 31 s")
    await turn()
    assert await probes.live() == OK


async def status(port: int, path: str) -> tuple[int, str]:
    try:
        return 200, await get(port, path)
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, "nobody listens"


async def answers(port: int, path: str, expected: int) -> str:
    seen: list[tuple[int, str]] = []

    async def as_expected() -> bool:
        seen.append(await status(port, path))
        return seen[-1][0] == expected

    await wait_until(as_expected, lambda: f"{expected} from {path}: {seen[-1]}")
    return seen[-1][1]


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.heavy
@both_stores
async def test_a_worker_is_ready_until_it_stops(stage: Stage) -> None:
    port = free_port()
    job = await stage.jobs.gated.enqueue("gate")
    worker = stage.worker(f"--metrics-port={port}", grace_seconds=3600)
    assert await answers(port, "/readyz", 200) == "ok\n"
    assert await answers(port, "/livez", 200) == "ok\n"
    await stage.noted("start", job.id)
    worker.signal(signal.SIGTERM)
    assert await answers(port, "/readyz", 503) == "0 of 1 workers are claiming jobs\n"
    assert (await status(port, "/livez"))[0] == 200
    stage.open_gate("gate")
    assert await worker.ended() == 0


@pytest.mark.heavy
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_blocked_worker_is_not_live_and_recovers(stage: Stage) -> None:
    port = free_port()
    job = await stage.jobs.gated_and_blocking.enqueue("gate")
    stage.worker(f"--metrics-port={port}", lease_seconds=0.5)
    await stage.noted("start", job.id)
    assert "blocked" in await answers(port, "/livez", 503)
    stage.open_gate("gate")
    await answers(port, "/livez", 200)


@pytest.mark.heavy
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_supervisor_answers_for_its_workers(stage: Stage) -> None:
    port = free_port()
    stage.worker(f"--metrics-port={port}", "--processes=2", concurrency=1)
    await answers(port, "/readyz", 200)
    assert "holdfast_workers_claiming 2" in await get(port)
    await answers(port, "/livez", 200)
