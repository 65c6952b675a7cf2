"""Samples of the queues: taken once per bucket, rolled up, kept for a time, read for charts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import BadArguments, Holdfast, Permanent, State
from holdfast.domain.limits import SAMPLED_QUEUES_MAX
from holdfast.domain.samples import FINEST, RESOLUTIONS, Sample, moment_of
from holdfast.observability.throughput import Throughput
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.samples import Row, SampleReader, Sampling, WaitRow
from holdfast.stores.protocol import Store
from holdfast.transactions.tables import Statements
from tests.support.jobs import claimed
from tests.support.processes import wait_until
from tests.support.running import execute, signal, working

SECOND = timedelta(seconds=1)


@pytest.fixture
async def hf(hf: Holdfast) -> Holdfast:
    """On SQLite, the first use creates the table, which samplers don't."""
    await hf.samples.get()
    return hf


async def earlier(hf: Holdfast, seconds: int = 600) -> int:
    """The start of a minute that was over long ago."""
    return int((await hf.now()).timestamp() - seconds) // 60 * 60


async def samples_from(hf: Holdfast, at: int, count: int, queue: str | None = None) -> list[Sample]:
    """This many samples of ten seconds each, from this time on."""
    since = moment_of(at)
    found = await hf.samples.get(
        queue, since=since, until=since + count * 10 * SECOND, points=count
    )
    assert (found.since, found.step_seconds) == (since, 10)
    return list(found.samples)


def another_process(hf: Holdfast) -> tuple[Throughput, Sampling]:
    throughput = Throughput()
    return throughput, Sampling(hf._desk, hf._own_tables, throughput)


async def test_a_sample_tells_what_waits_and_what_runs(
    hf: Holdfast,
) -> None:
    running, done = asyncio.Event(), asyncio.Event()

    @hf.job(queue="mail")
    async def send(number: int) -> None:
        running.set()
        await done.wait()

    now = await hf.now()
    at = int(now.timestamp()) // 10 * 10 - 10
    due = moment_of(at) - 40 * SECOND
    await send.enqueue(0)
    worker = asyncio.create_task(hf.run_due(concurrency=1))
    await signal(running)
    for priority in (1, 2):
        await send.options(run_at=due, priority=priority).enqueue(3)
    await send.options(delay_seconds=3600).enqueue(4)
    assert await hf._sampling.take(at) is True
    (mail,) = await samples_from(hf, at, 1, "mail")
    (every,) = await samples_from(hf, at, 1)
    done.set()
    await worker
    assert mail.ready == every.ready == 2
    assert mail.scheduled == every.scheduled == 1
    assert mail.running == every.running == 1
    assert mail.oldest_seconds == pytest.approx(40, abs=1)


async def test_what_attempts_came_to_is_in_the_samples(hf: Holdfast) -> None:
    @hf.job(queue="mail")
    async def send(number: int) -> None:
        if number == 0:
            raise RuntimeError("try again")
        if number < 0:
            raise Permanent("no such address")

    await hf.enqueue_many([send.call(number) for number in (1, 2, 3, 0, -1)])
    await hf.run_due()
    at = await earlier(hf)
    await hf._sampling.take(at)
    for queue in (None, "mail"):
        (sample,) = await samples_from(hf, at, 1, queue)
        assert (sample.succeeded, sample.retried, sample.failed) == (3, 1, 1)
        assert sample.covered_seconds == 10
        assert sample.p95_seconds is not None
        assert sample.p50_seconds is not None
        assert 0 < sample.p50_seconds <= sample.p95_seconds
    (other,) = await samples_from(hf, at, 1, "other")
    assert (other.ready, other.succeeded, other.p50_seconds) == (0, 0, None)


async def test_how_long_jobs_waited_is_in_the_samples(hf: Holdfast) -> None:
    @hf.job(queue="mail")
    async def send(number: int) -> None: ...

    for seconds in (0, 0, 0, 60):
        run_at = await hf.now() - seconds * SECOND
        await send.options(run_at=run_at).enqueue(seconds)
    await hf.run_due()
    at = await earlier(hf)
    await hf._sampling.take(at)
    for queue in (None, "mail"):
        (sample,) = await samples_from(hf, at, 1, queue)
        assert sample.wait_p50_seconds is not None
        assert sample.wait_p95_seconds is not None
        assert sample.wait_p99_seconds is not None
        assert 0 < sample.wait_p50_seconds < 40
        assert 39 < sample.wait_p95_seconds < sample.wait_p99_seconds < 101
    found = await hf.samples.by_queue(
        since=moment_of(at), until=moment_of(at) + 10 * SECOND, points=1
    )
    assert found.queues["mail"] == [sample]
    (other,) = await samples_from(hf, at, 1, "other")
    assert other.wait_p50_seconds is other.wait_p99_seconds is None


async def test_waits_of_many_spans_and_processes_are_those_of_all_their_jobs(hf: Holdfast) -> None:
    """The slow ones of a quiet minute don't weigh more than those of a busy one."""
    at = await earlier(hf, 3 * 3600) // 900 * 900
    processes = [another_process(hf) for _ in range(2)]
    for number in range(0, 1800, 30):
        jobs, seconds = (1, 60.0) if number < 60 else (100, 0.5)
        for throughput, sampling in processes:
            throughput.claimed(jobs * [claimed(queue="mail", waited_seconds=seconds)])
            await sampling.take(at + number)
    for _, sampling in processes:
        await sampling.take(at + 1820)
    since = moment_of(at)
    found = await hf.samples.get("mail", since=since, until=since + 900 * SECOND, points=15)
    assert [(each.wait_p99_seconds or 0) > 30 for each in found.samples] == [True, *14 * [False]]
    (whole,) = (
        await hf.samples.get("mail", since=since, until=since + 900 * SECOND, points=1)
    ).samples
    assert whole.wait_p99_seconds is not None
    assert whole.wait_p99_seconds < 1
    async with hf.transaction(read_only=True) as connection:
        rows = await hf.samples._own.tables.on(connection).all(
            "waits", WaitRow, seconds=900, step=900, since=0, until=2**40, queue="mail"
        )
    counts = {(row.at, row.up_to_ms): row.jobs for row in rows}
    assert counts == {
        (at, 63096): 4,
        (at, 631): 2 * 28 * 100,
        (at + 900, 631): 2 * 30 * 100,
    }


async def test_processes_share_a_bucket_one_looks_and_all_add(hf: Holdfast) -> None:
    at = await earlier(hf)
    processes = [another_process(hf) for _ in range(8)]
    for throughput, _ in processes:
        throughput.settled("mail", "succeeded", 1.0)
        throughput.settled("mail", State.DEAD, 3.0)
    looked = await asyncio.gather(*(sampling.take(at + 3) for _, sampling in processes))
    assert sum(looked) == 1
    (sample,) = await samples_from(hf, at, 1, "mail")
    assert (sample.succeeded, sample.failed, sample.ready) == (8, 8, 0)
    assert (sample.p50_seconds, sample.p95_seconds) == (1.0, 1.0)
    assert await hf._sampling.take(at + 9) is False


async def test_a_bucket_that_nobody_sampled_is_a_gap_and_not_a_zero(hf: Holdfast) -> None:
    at = await earlier(hf)
    for moment in (at, at + 20):
        await hf._sampling.take(moment)
    first, missed, last = await samples_from(hf, at, 3)
    assert (first.ready, last.ready) == (0, 0)
    assert missed == Sample(at=moment_of(at + 10))
    assert missed.ready is missed.succeeded is None
    assert missed.covered_seconds == 0


async def test_samples_are_rolled_up_into_minutes_and_quarters_of_an_hour(hf: Holdfast) -> None:
    at = await earlier(hf, 3 * 3600) // 900 * 900
    throughput, sampling = another_process(hf)
    for number in range(0, 1800, 30):
        ran = 2.0 if number < 60 else 1.0
        throughput.settled("mail", "succeeded", ran)
        throughput.settled("mail", "failed", ran)
        await sampling.take(at + number)
    await sampling.take(at + 1820)
    since = moment_of(at)
    minutes = await hf.samples.get("mail", since=since, until=since + 900 * SECOND, points=15)
    assert minutes.step_seconds == 60
    assert [each.succeeded for each in minutes.samples] == 15 * [2]
    assert [each.p95_seconds for each in minutes.samples] == [2.0, *14 * [1.0]]
    rows = await quarters(hf, "mail")
    assert rows == [(at, 30, 30, pytest.approx(1 + 1 / 15), 2.0), (at + 900, 30, 30, 1.0, 1.0)]


async def quarters(hf: Holdfast, queue: str) -> list[tuple[object, ...]]:
    async with hf.transaction(read_only=True) as connection:
        rows = await hf.samples._own.tables.on(connection).all(
            "samples", Row, seconds=900, step=900, since=0, until=2**40, queue=queue
        )
    return [(row.at, row.succeeded, row.failed, row.p50_seconds, row.p95_seconds) for row in rows]


async def test_a_roll_up_is_made_once_and_catches_up_after_a_pause(hf: Holdfast) -> None:
    at = await earlier(hf, 4000) // 900 * 900
    throughput, sampling = another_process(hf)
    for moment in (at, at + 30, at + 90):
        throughput.settled("mail", "succeeded", 1.0)
        await sampling.take(moment)
    for moment in (at + 1000, at + 1010, at + 1090):
        await sampling.take(moment)
    since = moment_of(at)
    found = await hf.samples.get(
        "mail", since=since - timedelta(hours=2), until=since + 120 * SECOND, points=1000
    )
    counts = {each.at: each.succeeded for each in found.samples if each.succeeded}
    assert counts == {since: 2, since + 60 * SECOND: 1}
    assert [row[1] for row in await quarters(hf, "mail")] == [3]


async def test_the_number_of_samples_is_bounded(hf: Holdfast, store_url: str) -> None:
    now = int((await hf.now()).timestamp())
    await hf._sampling.take(now - 60)
    rows = [
        f"({length}, '{queue}', {(now - kept) // length * length - age * length}, 1)"
        for length, kept in RESOLUTIONS
        for queue in ("", "mail")
        for age in (1, 5, -2)
    ]
    await execute(
        store_url, f"INSERT INTO samples (seconds, queue, at, ready) VALUES {','.join(rows)}"
    )
    await execute(
        store_url,
        "INSERT INTO sample_waits (seconds, queue, at, up_to_ms, jobs)"
        " SELECT seconds, queue, at, 1, 1 FROM samples",
    )
    await hf._sampling.take(now)
    async with hf.transaction(read_only=True) as connection:
        statements = hf.samples._own.tables.on(connection)
        for length, kept in RESOLUTIONS:
            span = {"seconds": length, "step": length, "since": 0, "until": 2**40, "queue": ""}
            for found in (
                await statements.all("samples", Row, **span),
                await statements.all("waits", WaitRow, **span),
            ):
                assert min(row.at for row in found) > now - kept - length


async def test_more_queues_than_the_limit_are_counted_together_only(hf: Holdfast) -> None:
    @hf.job
    async def send() -> None: ...

    for number in range(SAMPLED_QUEUES_MAX + 5):
        await hf.enqueue_many(
            [send.options(queue=f"q{number:04}").call() for _ in range(1 + number % 2)]
        )
    throughput, sampling = another_process(hf)
    at = await earlier(hf)
    for number in range(SAMPLED_QUEUES_MAX + 5):
        throughput.settled(f"r{number:04}", "succeeded", 0.1)
    await sampling.take(at)
    since = moment_of(at)
    found = await hf.samples.by_queue(since=since, until=since + 10 * SECOND, points=1)
    assert len(found.queues) <= 2 * SAMPLED_QUEUES_MAX
    (every,) = await samples_from(hf, at, 1)
    assert every.succeeded == SAMPLED_QUEUES_MAX + 5
    assert every.scheduled == sum(1 + number % 2 for number in range(SAMPLED_QUEUES_MAX + 5))


async def test_by_queue_tells_zeros_where_a_queue_was_quiet(hf: Holdfast) -> None:
    at = await earlier(hf)
    throughput, sampling = another_process(hf)
    for moment, queue in ((at, "a"), (at + 10, "b"), (at + 30, "a")):
        throughput.settled(queue, "succeeded", 1.0)
        await sampling.take(moment)
    since = moment_of(at)
    found = await hf.samples.by_queue(since=since, until=since + 40 * SECOND, points=4)
    counts = {name: [each.succeeded for each in rows] for name, rows in found.queues.items()}
    assert counts == {"a": [1, 0, None, 1], "b": [0, 1, None, 0]}


async def test_counts_that_could_not_be_written_are_written_later(hf: Holdfast) -> None:
    at = await earlier(hf)
    await hf._sampling.take(at)
    throughput, _ = another_process(hf)
    broken = Sampling(hf._desk, _Broken(hf._store, lambda: False), throughput)
    for _ in range(2):
        throughput.settled("mail", "succeeded", 1.0)
        with pytest.raises(ConnectionError):
            await broken.take(at)
    await Sampling(hf._desk, hf._own_tables, throughput).take(at)
    (sample,) = await samples_from(hf, at, 1, "mail")
    assert sample.succeeded == 2


class _Broken(OwnTables):
    """The connection breaks before the statement is sent."""

    @asynccontextmanager
    async def one_by_one(self) -> AsyncIterator[Statements]:
        yield _Away()  # type: ignore[misc]


class _Away:
    async def value(self, statement: str, **values: Any) -> Any:
        raise ConnectionError("the database is away")


async def test_a_worker_takes_samples_from_its_start(hf: Holdfast) -> None:
    @hf.job
    async def send() -> None: ...

    async def is_sampled() -> bool:
        async with hf.transaction(read_only=True) as connection:
            statements = hf.samples._own.tables.on(connection)
            at = int((await hf.now()).timestamp()) // 10 * 10
            buckets = (at, at - FINEST.seconds)
            return any([await statements.value("sampled", bucket=each) for each in buckets])

    async with working(hf):
        await wait_until(is_sampled, "sampled")


async def test_a_store_without_transactions_has_no_samples(local_hf: Holdfast) -> None:
    async with local_hf:
        desk = replace(local_hf._desk, store=partial(_bare, await local_hf._store()))
        reader = SampleReader(desk, local_hf._own_tables)
        found = await reader.get()
        assert {each.covered_seconds for each in found.samples} == {0}
        assert (await reader.by_queue()).queues == {}
        own = OwnTables(desk.store, lambda: True)
        assert await Sampling(desk, own, Throughput()).take() is False


async def _bare(store: Store) -> Any:
    return _Bare(store)


class _Bare:
    def __init__(self, store: Store) -> None:
        self.now = store.now


@pytest.mark.parametrize(
    "values",
    [
        {"points": 0},
        {"points": 1001},
        {"queue": ""},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
async def test_what_no_chart_can_ask_for_is_refused(
    local_hf: Holdfast, values: dict[str, object]
) -> None:
    with pytest.raises(BadArguments):
        await local_hf.samples.get(**values)  # type: ignore[arg-type]


async def test_a_sampler_creates_no_tables(local_hf: Holdfast) -> None:
    local_hf._metrics.throughput.settled("mail", "succeeded", 1.0)
    assert await local_hf._sampling.take() is False
    at = await earlier(local_hf)
    await local_hf.samples.get()  # creates them
    assert await local_hf._sampling.take(at) is True
    (sample,) = await samples_from(local_hf, at, 1, "mail")
    assert sample.succeeded == 1  # nothing was lost
