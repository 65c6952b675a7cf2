"""One look at everything tells what is there, on both stores alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, Permanent, State
from holdfast.domain.job import Count
from holdfast.domain.overview import Ended, Meter, Rate, latency, latency_by_queue
from holdfast.domain.queues import QueueStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_an_overview_counts_what_waits_what_ended_and_what_failed(hf: Holdfast) -> None:
    @hf.job(queue="mail")
    async def send(number: int) -> None:
        if number < 0:
            raise Permanent("no such address", code="BAD_ADDRESS")

    @hf.job(queue="later")
    async def tidy() -> None:
        pass

    await hf.enqueue_many([send.call(1), send.call(2), send.call(-1)])
    await hf.run_due()
    await send.enqueue(3)
    await tidy.options(delay_seconds=3600).enqueue()
    seen = await hf.overview()
    assert [(each.name, each.ready, each.scheduled, each.running) for each in seen.queues] == [
        ("later", 0, 1, 0),
        ("mail", 1, 0, 0),
    ]
    assert sorted(seen.ended) == [
        Count("mail", State.FAILED, 1),
        Count("mail", State.SUCCEEDED, 2),
    ]
    assert [(job.name, job.error_code) for job in seen.failures] == [("send", "BAD_ADDRESS")]
    assert seen.latency is not None
    assert seen.latency.jobs == seen.latency_by_queue["mail"].jobs == 3
    assert list(seen.latency_by_queue) == ["mail"]
    assert 0 <= seen.latency.wait.p50 <= seen.latency.wait.p95
    (mail,) = [each for each in seen.queues if each.name == "mail"]
    assert mail.oldest_ready_seconds is not None
    assert mail.oldest_ready_seconds >= 0


async def test_done_counts_neither_what_failed_nor_what_was_canceled(hf: Holdfast) -> None:
    @hf.job
    async def send(number: int) -> None:
        if number < 0:
            raise Permanent("no such address", code="BAD_ADDRESS")

    meter = Meter()
    seen = await hf.overview()
    meter.read(seen.now, seen.ended)
    canceled = await send.options(delay_seconds=3600).enqueue(1)
    await hf.jobs.cancel(canceled.id)
    await hf.enqueue_many([send.call(number) for number in (1, 2, 3, -1, -2)])
    await hf.run_due()
    before, seen = seen.now, await hf.overview()
    meter.read(seen.now, seen.ended)
    seconds = (seen.now - before).total_seconds()
    assert meter.rate("default") == Rate(done=3 / seconds, failed=2 / seconds)


async def test_a_rate_knows_what_failed_in_the_minute_before_the_first_reading(
    hf: Holdfast,
) -> None:
    @hf.job(queue="mail")
    async def send(number: int) -> None:
        if number:
            raise Permanent("no such address", code="BAD_ADDRESS")

    await hf.enqueue_many([send.call(number) for number in range(501)])
    await hf.run_due()
    seen = await hf.overview()
    meter = Meter()
    meter.read(seen.now, seen.ended, seen.ended_last_minute)
    assert meter.rate("mail") == meter.rate() == Rate(done=1 / 60, failed=500 / 60)


async def test_a_queue_that_has_emptied_is_still_shown(hf: Holdfast) -> None:
    @hf.job(queue="mail")
    async def send() -> None:
        pass

    await send.enqueue()
    await hf.run_due()
    assert (await hf.overview()).queues == [QueueStatus(name="mail")]


async def test_a_database_without_jobs_has_an_overview(hf: Holdfast) -> None:
    seen = await hf.overview()
    assert (seen.queues, seen.workers, seen.breakers, seen.ended) == ([], [], [], [])
    assert (seen.latency, seen.latency_by_queue, seen.failures) == (None, {}, [])


async def test_what_was_canceled_while_it_waited_has_no_latency(hf: Holdfast) -> None:
    @hf.job
    async def send() -> None:
        pass

    job = await send.enqueue()
    await hf.jobs.cancel(job.id)
    assert (await hf.overview()).latency is None


def test_latency_tells_the_middle_and_the_slow_end() -> None:
    ended = [Ended("a", float(number), number / 10) for number in range(101)]
    found = latency(ended)
    assert found is not None
    assert (found.wait.p50, found.wait.p95) == (50.0, 95.0)
    assert (found.run.p50, found.run.p95) == (5.0, 9.5)
    by_queue = latency_by_queue([*ended, Ended("b", 1.0, 2.0)])
    assert by_queue["b"].jobs == 1
    assert by_queue["b"].run.p95 == 2.0


def read(meter: Meter, second: float, *counts: tuple[str, State, int]) -> None:
    meter.read(NOW + timedelta(seconds=second), [Count(*count) for count in counts])


def test_a_rate_is_what_ended_between_two_readings() -> None:
    meter = Meter()
    read(meter, 0, ("mail", State.SUCCEEDED, 100), ("mail", State.DEAD, 7))
    assert meter.rate() is None
    assert meter.rate("mail") is None
    read(
        meter,
        2,
        ("mail", State.SUCCEEDED, 160),
        ("mail", State.DEAD, 9),
        ("mail", State.CANCELED, 40),
        ("images", State.FAILED, 8),
    )
    assert meter.rate() == Rate(done=30, failed=5)
    assert meter.rate("mail") == Rate(done=30, failed=1)
    assert meter.rate("images") == Rate(done=0, failed=4)
    assert meter.line() == [30]
    assert meter.rate("unknown") == Rate(0, 0)


def test_what_was_before_the_first_reading_fades_from_a_rate() -> None:
    meter = Meter()
    counts = [Count("mail", State.DEAD, 900)]
    meter.read(NOW, counts, [Count("mail", State.DEAD, 600)])
    assert meter.rate() == Rate(done=0, failed=10)
    for second, failed in ((15, 7.5), (45, 2.5), (60, 0), (90, 0)):
        meter.read(NOW + timedelta(seconds=second), counts)
        assert meter.rate() == Rate(done=0, failed=failed)


def test_history_that_is_forgotten_makes_no_rate() -> None:
    meter = Meter()
    read(meter, 0, ("mail", State.SUCCEEDED, 1000))
    read(meter, 1, ("mail", State.SUCCEEDED, 10))
    read(meter, 2, ("mail", State.SUCCEEDED, 30))
    assert meter.rate() == Rate(done=10, failed=0)
    assert meter.line() == [0, 20]


def test_rates_forget_what_is_older_than_a_minute() -> None:
    meter = Meter()
    read(meter, 0, ("mail", State.SUCCEEDED, 0))
    read(meter, 30, ("mail", State.SUCCEEDED, 3000))
    for second in range(60, 121, 30):
        read(meter, second, ("mail", State.SUCCEEDED, 3000))
    assert meter.rate() == Rate(0, 0)


def test_a_clock_that_stands_or_steps_back_makes_no_rate() -> None:
    meter = Meter()
    read(meter, 10, ("mail", State.SUCCEEDED, 0))
    read(meter, 10, ("mail", State.SUCCEEDED, 50))
    read(meter, 5, ("mail", State.SUCCEEDED, 50))
    assert meter.rate() is None


@pytest.mark.parametrize("count", [1, 2])
def test_latency_of_few_jobs_is_theirs(count: int) -> None:
    found = latency([Ended("a", 3.0, 4.0)] * count)
    assert found is not None
    assert (found.wait.p50, found.run.p95, found.jobs) == (3.0, 4.0, count)
