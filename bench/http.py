"""What is measured of the HTTP API, each beside what it is compared with."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from bench.adapters.contract import BULK_JOBS
from bench.cases import Measuring, pilot
from bench.driver import Driver, Subject, SubjectFailed
from bench.growth import Case
from bench.targets import BARE_CASE, BATCHES_CASE, BULK_CASE, ENQUEUE_CASE, WATCHED_CASE
from holdfast import Holdfast
from holdfast.api.server import listen

CONNECTIONS = 16
WATCHERS = 200
JOB = {"name": "nothing", "arguments": {"sent_at": 0.0, "padding": ""}}
APP = "bench.adapters.holdfast_jobs:hf"
SERVE = (sys.executable, "-m", "holdfast", "serve", APP, "--log-level", "error", "--fd")
SERVE_BARE = (sys.executable, "-m", "bench.bare_server")
CLIENT = (sys.executable, "-m", "bench.http_client")

Address = tuple[str, int]


@contextmanager
def served(driver: Driver, command: Sequence[str] = SERVE) -> Iterator[Address]:
    with listen("127.0.0.1", 0) as listening:
        fd = listening.fileno()
        with driver.beside(*command, fd, pass_fds=(fd,)):
            yield listening.getsockname()


def load(driver: Driver, address: Address, path: str, body: object, sizes: Sequence[int]) -> float:
    """Send as many requests on as many connections; return requests a second."""
    answer = driver.ask_other(*CLIENT, "load", *address, path, *sizes, given=json.dumps(body))
    return float(answer["requests"]) / float(answer["seconds"])


def enqueue_over_http(measuring: Measuring, subject: Subject) -> None:
    sizes = (CONNECTIONS, measuring.scale.http_requests)
    for _ in range(measuring.scale.growth_rounds):
        for case, command in ((BARE_CASE, SERVE_BARE), (ENQUEUE_CASE, SERVE)):
            with measuring.driving(subject, case) as driver, served(driver, command) as address:
                rate = load(driver, address, "/v1/jobs", JOB, sizes)
                measuring.add(subject, case, rate, "requests/s", CONNECTIONS)


def batches(measuring: Measuring, subject: Subject) -> None:
    jobs = measuring.scale.bulk_jobs
    body = {"jobs": [JOB] * BULK_JOBS}
    for _ in range(measuring.scale.growth_rounds):
        with measuring.driving(subject, BULK_CASE) as driver:
            measuring.add(subject, BULK_CASE, driver.rate("bulk", jobs), "jobs/s")
        with measuring.driving(subject, BATCHES_CASE) as driver, served(driver) as address:
            rate = load(driver, address, "/v1/jobs/batch", body, (1, jobs // BULK_JOBS))
            measuring.add(subject, BATCHES_CASE, rate * BULK_JOBS, "jobs/s")


def watched_drain(measuring: Measuring, subject: Subject) -> None:
    """A worker with jobs that report progress all the time: with a stream for each of them, and
    with none."""
    jobs = pilot(measuring, subject)
    for _ in range(measuring.scale.growth_rounds):
        for watchers in (0, WATCHERS):
            with (
                measuring.driving(subject, f"drain with {watchers} watchers") as driver,
                served(driver) as address,
            ):
                ids = asyncio.run(enqueue_reporting(driver.url))
                driver.ask("bulk", jobs)
                with watching(driver, address, ids) if watchers else nullcontext():
                    drained = driver.drain(jobs, left=len(ids))
                rate = jobs / drained.seconds
                measuring.add(subject, WATCHED_CASE, rate, "jobs/s", watchers)


async def enqueue_reporting(url: str) -> list[str]:
    async with Holdfast(url) as hf:

        @hf.job
        async def report() -> None: ...

        enqueued = await hf.enqueue_many([report.call() for _ in range(WATCHERS)])
        return [str(job.id) for job in enqueued]


@contextmanager
def watching(driver: Driver, address: Address, ids: Sequence[str]) -> Iterator[None]:
    with driver.beside(*CLIENT, "watch", *address, asked=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write("".join(f"{each}\n" for each in ids) + "\n")
        client.stdin.flush()
        if not client.stdout.readline():
            raise SubjectFailed(f"{driver.subject.name}: the streams did not begin")
        yield
        client.stdin.write("\n")
        client.stdin.flush()
        events = int(json.loads(client.stdout.readline())["events"])
        if events < 2 * len(ids):
            raise SubjectFailed(f"{driver.subject.name}: only {events} events")


POSTGRES: tuple[Case, ...] = (enqueue_over_http, batches, watched_drain)
SQLITE: tuple[Case, ...] = (enqueue_over_http, batches)
