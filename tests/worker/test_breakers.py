"""Breakers: what a job depends on, and what happens to the jobs while that is down."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from holdfast import (
    BadArguments,
    Breaker,
    BreakerStatus,
    ConfigurationError,
    Context,
    Holdfast,
    JobFailed,
    JobFunction,
    JobTimeout,
    Permanent,
    Retry,
    RetryAfter,
    Snooze,
    State,
    Transient,
)
from holdfast.domain.limits import BREAKER_FAILURES_MAX, NAME_CHARS_MAX
from tests.support.crashing import make_suspects
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, seen_events, signal, working


def host_of(url: str, **others: Any) -> str | None:
    return urlsplit(url).hostname


@pytest.mark.parametrize(
    "given", ["gateway", Breaker("gateway"), lambda size, **_: "gateway" if size else None]
)
async def test_a_job_depends_on_what_its_function_names(local_hf: Holdfast, given: Any) -> None:
    @local_hf.job(breaker=given)
    async def convert(ctx: Context, size: int) -> None: ...

    job = await convert.enqueue(1)
    assert job.breaker == "gateway"
    assert (await local_hf.get(job.id)).breaker == "gateway"


async def test_a_job_without_a_breaker_depends_on_nothing(local_hf: Holdfast) -> None:
    @local_hf.job
    async def free() -> None: ...

    @local_hf.job(breaker=lambda: None)
    async def freed() -> None: ...

    assert [job.breaker for job in await local_hf.enqueue_many([free.call(), freed.call()])] == [
        None,
        None,
    ]


async def test_a_key_is_made_of_the_arguments_as_the_handler_gets_them(local_hf: Holdfast) -> None:
    seen: list[dict[str, Any]] = []

    def key(**values: Any) -> str:
        seen.append(values)
        return "key"

    @local_hf.job(breaker=key)
    async def send(ctx: Context, numbers: tuple[int, ...], *, times: int = 2) -> None: ...

    assert send.call([1, 2]).breaker == "key"  # type: ignore[arg-type]
    send.call((3,), times=5)
    assert seen == [{"numbers": (1, 2), "times": 2}, {"numbers": (3,), "times": 5}]


async def test_what_the_function_for_a_key_raises_is_told_to_who_enqueues(
    local_hf: Holdfast,
) -> None:
    @local_hf.job(breaker=lambda prices: prices["EUR"])
    async def buy(prices: dict[str, str]) -> None: ...

    with pytest.raises(BadArguments, match=r"buy: .* key function raised KeyError: 'EUR'"):
        await buy.enqueue({})
    with pytest.raises(BadArguments, match="buy: argument prices"):
        await buy.enqueue(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "a\nb", "x" * (NAME_CHARS_MAX + 1), 7])
async def test_a_key_is_a_name(local_hf: Holdfast, key: Any) -> None:
    with pytest.raises(BadArguments, match="breaker's key"):
        Breaker(key)

    @local_hf.job(breaker=lambda: key)
    async def depend() -> None: ...

    with pytest.raises(BadArguments, match="breaker's key"):
        await depend.enqueue()


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"failures": 2.5},
        {"failures": BREAKER_FAILURES_MAX + 1},
        {"window_seconds": 0},
        {"window_seconds": "30"},
        {"probe_seconds": -1},
        {"probe_seconds": float("nan")},
        {"errors": "GW_5XX"},
        {"errors": [5]},
        {"errors": [int]},
        {"errors": OSError},
    ],
)
def test_a_breaker_that_can_not_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Breaker("gateway", **wrong)


@pytest.mark.parametrize(
    ("given", "text"),
    [(5, "must be a key or a Breaker"), (lambda host: host, r"by name \(url, times\)")],
)
def test_a_function_refuses_what_is_no_breaker_of_it(local_url: str, given: Any, text: str) -> None:
    hf = Holdfast(local_url)
    with pytest.raises(ConfigurationError, match=text):

        @hf.job(breaker=given)
        async def fetch(ctx: Context, url: str, times: int = 3) -> None: ...


async def test_a_requeued_job_keeps_its_key_whatever_its_new_arguments(local_hf: Holdfast) -> None:
    @local_hf.job(breaker=host_of)
    async def fetch(url: str) -> None: ...

    job = await fetch.enqueue("http://old.example/")
    await local_hf.jobs.cancel(job.id)
    again = await local_hf.jobs.requeue(job.id, arguments={"url": "http://new.example/"})
    assert again.breaker == job.breaker == "old.example"


class Gateway:
    """What the jobs of a test depend on: works or not, and counts who asked."""

    def __init__(self) -> None:
        self.down: set[str] | None = set()  # None: all of it
        self.asked: list[UUID] = []
        self.inside = asyncio.Event()
        self.door = asyncio.Event()
        self.door.set()

    async def ask(self, ctx: Context, key: str = "gateway") -> None:
        self.asked.append(ctx.job_id)
        self.inside.set()
        await self.door.wait()
        if self.down is None or key in self.down:
            raise ConnectionError("no answer")

    async def is_asked(self, times: int) -> None:
        """Wait until it was asked so many times more."""
        wanted = len(self.asked) + times
        await wait_until(lambda: len(self.asked) >= wanted, f"asked {times} times more")


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def depending(
    hf: Holdfast, gateway: Gateway, breaker: Breaker, **options: Any
) -> JobFunction[[], Any]:
    """A job function whose jobs ask the gateway."""

    @hf.job(name="convert", breaker=breaker, **options)
    async def convert(ctx: Context) -> None:
        await gateway.ask(ctx)

    return convert


async def seen(hf: Holdfast, key: str = "gateway") -> BreakerStatus:
    (found,) = [breaker for breaker in await hf.breakers.list() if breaker.key == key]
    return found


async def is_holding(hf: Holdfast, count: int, key: str = "gateway") -> None:
    """Wait until so many jobs are held."""

    async def found() -> bool:
        return any(each.key == key and each.parked == count for each in await hf.breakers.list())

    await wait_until(found, f"{count} jobs held for {key}")


async def open_by_failure(hf: Holdfast, gateway: Gateway, convert: JobFunction[[], Any]) -> None:
    """Let as many jobs fail as it takes, and end the worker in which they did."""
    gateway.down = None
    failures = convert._definition.breaker.failures if convert._definition.breaker else 0
    jobs = await hf.enqueue_many([convert.call() for _ in range(failures)])
    async with working(hf):
        for job in jobs:
            with pytest.raises(JobFailed):
                await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
    assert (await seen(hf)).is_open
    gateway.asked.clear()


async def have_died(hf: Holdfast, jobs: int) -> bool:
    counts = await hf.jobs.counts()
    return sum(count.jobs for count in counts if count.state is State.DEAD) >= jobs


async def test_a_dependency_that_is_down_costs_so_many_attempts_and_no_more(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=5, window_seconds=600, probe_seconds=0.05)
    convert = depending(hf, gateway, breaker, retry=Retry.none)

    @hf.job
    async def free() -> None: ...

    @hf.job(breaker="another")
    async def other() -> None: ...

    gateway.down = None
    jobs = await hf.enqueue_many([convert.call() for _ in range(200)])
    async with working(hf, concurrency=50):
        await gateway.is_asked(55)  # many at once, and then some that are sent ahead
        for job in await hf.enqueue_many([free.call(), other.call()]):
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        # Failures that are counted are settled beside the others.
        await wait_until(partial(have_died, hf, 5), "the first failures are settled")
        found = [await hf.get(job.id) for job in jobs]
        assert Counter(job.state for job in found)[State.DEAD] == 5
        assert all(job.attempts <= (job.state is not State.QUEUED) for job in found)
        gateway.down = set()
        survivors = [job for job in found if job.state is not State.DEAD]
        for job in survivors:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
    assert len(survivors) == 195
    assert {(await hf.get(job.id)).attempts for job in jobs} == {1}
    assert not (await seen(hf)).is_open


async def test_only_one_job_at_a_time_is_sent_ahead(hf: Holdfast, gateway: Gateway) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.1)
    convert = depending(hf, gateway, breaker, retry=Retry.none)
    await open_by_failure(hf, gateway, convert)
    jobs = await hf.enqueue_many([convert.call() for _ in range(10)])
    async with seen_events() as told, working(hf):
        await gateway.is_asked(3)
        assert len({*gateway.asked}) == len(gateway.asked)  # they take turns
        starts = [event for event in told.named("start") if event.fields["name"] == "convert"]
        assert {event.message for event in starts} == {"a probe: its breaker is open"}
        gateway.down = set()
        for job in jobs:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_worker_in_which_nothing_failed_holds_the_jobs_too(
    hf: Holdfast, store_url: str, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=3, window_seconds=600, probe_seconds=3600)
    await open_by_failure(hf, gateway, depending(hf, gateway, breaker, retry=Retry.none))
    gateway.down = set()
    async with Holdfast(store_url, **QUICK) as other:
        convert = depending(other, gateway, breaker)

        @other.job(priority=10)
        async def free() -> None: ...

        jobs = await other.enqueue_many([*[convert.call()] * 10, free.call()])
        async with working(other):
            await other.result(jobs[-1].id, timeout_seconds=WAIT_SECONDS_MAX)
            await is_holding(other, 10)
        assert gateway.asked == []


async def test_each_of_many_keys_has_a_breaker_of_its_own(hf: Holdfast, gateway: Gateway) -> None:
    broken = {f"host-{number}" for number in range(0, 2000, 100)}
    gateway.down = broken.copy()

    @hf.job(
        breaker=Breaker(lambda host: host, failures=2, window_seconds=600, probe_seconds=0.2),
        retry=Retry.exponential(max_attempts=2, base=0.01),
    )
    async def fetch(ctx: Context, host: str) -> None:
        await gateway.ask(ctx, host)

    hosts = [f"host-{number}" for number in range(2000)]
    jobs = await hf.enqueue_many([fetch.call(host) for host in [*hosts, *broken, *broken]])
    async with working(hf, concurrency=200):
        await wait_until(partial(all_open, hf, broken), "open: all that are broken")
        assert {breaker.key for breaker in await hf.breakers.list()} == broken
        await wait_until(partial(has_ended, hf, 1980), "ended: all that depend on the others")
        gateway.down = set()
        await wait_until(partial(has_ended, hf, len(jobs)), "ended: all")
    ended = [await hf.get(job.id) for job in jobs if job.breaker in broken]
    assert {job.state for job in ended} == {State.SUCCEEDED}
    assert sum(job.attempts for job in ended) == (3 + 2) * len(broken)


async def has_ended(hf: Holdfast, count: int) -> bool:
    found = [each.jobs for each in await hf.jobs.counts() if each.state is State.SUCCEEDED]
    return sum(found) == count


async def all_open(hf: Holdfast, keys: set[str]) -> bool:
    return keys <= {breaker.key for breaker in await hf.breakers.list() if breaker.is_open}


@pytest.mark.parametrize(
    ("errors", "raised", "counts"),
    [
        ((), ConnectionError("away"), True),
        ((), Transient("away", code="GW_5XX"), True),
        ((), RetryAfter(3600, "busy"), True),
        ((), Permanent("no such page", code="GW_5XX"), False),
        ((), LookupError("listed as permanent"), False),
        ((), Snooze(3600), False),
        (["GW_5XX", OSError], ConnectionError("away"), True),
        (["GW_5XX", OSError], Transient("away", code="GW_5XX"), True),
        (["GW_5XX", OSError], Transient("away", code="IO_ERROR"), False),
        (["GW_5XX"], Permanent("no such page", code="GW_5XX"), False),
    ],
)
async def test_only_failures_that_speak_against_the_dependency_count(
    local_hf: Holdfast, errors: Any, raised: Exception, counts: bool
) -> None:
    @local_hf.job(
        breaker=Breaker("gateway", failures=1, probe_seconds=3600, errors=errors),
        retry=Retry.schedule([3600]),
        permanent=[LookupError],
    )
    async def fail() -> None:
        raise raised

    await fail.enqueue()
    await local_hf.run_due()
    assert [breaker.is_open for breaker in await local_hf.breakers.list()] == [True] * counts


@pytest.mark.parametrize("errors", [[], [JobTimeout], ["TIMEOUT"]])
async def test_a_handler_that_waits_too_long_for_the_dependency_counts(
    local_hf: Holdfast, gateway: Gateway, errors: Any
) -> None:
    breaker = Breaker("gateway", failures=1, probe_seconds=3600, errors=errors)
    convert = depending(local_hf, gateway, breaker, retry=Retry.none, timeout_seconds=0.01)
    gateway.door.clear()
    await convert.enqueue()
    await local_hf.run_due()
    assert (await seen(local_hf)).opened_because == "TIMEOUT: took longer than 0.01 s"


async def test_a_crash_or_arguments_that_do_not_fit_are_not_the_dependencys_fault(
    local_hf: Holdfast, local_url: str
) -> None:
    async with Holdfast(local_url, **QUICK) as old:

        @old.job(name="convert", breaker="gateway")
        async def before(size: str) -> None: ...

        await before.enqueue("large")

    @local_hf.job(breaker=Breaker("gateway", failures=1))
    async def convert(size: int) -> None: ...

    report = await local_hf.run_due()
    assert report.failed == 1
    assert await local_hf.breakers.list() == []


async def test_what_was_opened_by_hand_is_not_probed_and_opens_by_hand_only(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.05)
    convert = depending(hf, gateway, breaker)
    await hf.breakers.open("gateway", by="ann", because="maintenance")

    @hf.job(priority=10)
    async def free() -> None: ...

    job = await convert.enqueue()
    async with working(hf):
        await is_holding(hf, 1)
        for _ in range(3):
            await hf.result((await free.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)
        assert gateway.asked == []
        await hf.breakers.close("gateway")
        await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_job_that_was_sent_ahead_does_not_undo_what_an_operator_did_meanwhile(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.05)
    convert = depending(hf, gateway, breaker, retry=Retry.none)
    await open_by_failure(hf, gateway, convert)
    gateway.down = set()
    gateway.door.clear()
    gateway.inside.clear()
    job, waiting = await hf.enqueue_many([convert.call(), convert.call()])
    async with working(hf):
        await signal(gateway.inside)
        await hf.breakers.open("gateway", by="ann", because="maintenance")
        gateway.door.set()
        await wait_until(partial(has_succeeded, hf, {job.id, waiting.id}), "one succeeded")
        await is_holding(hf, 1)
    assert (await seen(hf)).opened_by == "ann"


async def has_succeeded(hf: Holdfast, ids: set[UUID]) -> bool:
    return any([(await hf.get(each)).state is State.SUCCEEDED for each in ids])


@pytest.mark.parametrize(
    "way", ["returns", "completes and fails after it", "fails permanently", "fails otherwise"]
)
async def test_whoever_gets_an_answer_closes_the_breaker(
    hf: Holdfast, gateway: Gateway, way: str
) -> None:
    breaker = Breaker("gateway", failures=1, probe_seconds=0.05, errors=[ConnectionError])

    @hf.job(breaker=breaker, retry=Retry.none)
    async def convert(ctx: Context) -> None:
        await gateway.ask(ctx)
        if way == "completes and fails after it":
            async with ctx.completing():
                pass
            raise ConnectionError("not of the gateway")
        if way == "fails permanently":
            raise Permanent("no such page")
        if way == "fails otherwise":
            raise Transient("no place on the disk", code="IO_ERROR")

    await open_by_failure(hf, gateway, convert)
    gateway.down = set()
    async with seen_events() as told, working(hf):
        await convert.enqueue()
        closed = await told.first("breaker_closed")
    assert closed.fields["breaker"] == "gateway"
    assert not (await seen(hf)).is_open


async def test_a_job_that_was_sent_ahead_and_comes_to_nothing_leaves_the_breaker_open(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.05)
    asked: list[int] = []

    @hf.job(breaker=breaker, retry=Retry.none)
    async def convert(ctx: Context) -> None:
        await gateway.ask(ctx)
        asked.append(ctx.attempt)
        if len(asked) < 3:
            raise Snooze(0)

    await open_by_failure(hf, gateway, convert)
    gateway.down = set()
    async with seen_events() as told, working(hf):
        job = await convert.enqueue()
        await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        await told.first("breaker_closed")
        starts = [event.message for event in told.named("start")]
    assert starts == ["a probe: its breaker is open"] * 3
    assert asked == [1, 1, 1]


async def test_what_happens_to_a_breaker_is_told(hf: Holdfast, gateway: Gateway) -> None:
    breaker = Breaker("gateway", failures=2, window_seconds=600, probe_seconds=0.05)
    convert = depending(hf, gateway, breaker, retry=Retry.schedule([0.01], max_attempts=9))
    gateway.down = None
    jobs = await hf.enqueue_many([convert.call() for _ in range(3)])
    async with seen_events() as told, working(hf):
        opened = await told.first("breaker_opened")
        parked = await told.first("parked")
        gateway.down = set()
        for job in jobs:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        await told.first("breaker_closed")
    assert (opened.fields["breaker"], opened.fields["count"]) == ("gateway", 2)
    assert opened.message.endswith("attempt: ConnectionError: no answer")
    assert len(told.named("breaker_opened")) == 1
    assert (parked.fields["breaker"], parked.fields["error_code"]) == ("gateway", "ConnectionError")
    assert parked.fields["state"] == State.QUEUED


async def test_a_worker_that_ends_when_all_is_done_waits_for_what_is_held(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.05)
    convert = depending(hf, gateway, breaker, retry=Retry.none)
    await open_by_failure(hf, gateway, convert)
    jobs = await hf.enqueue_many([convert.call() for _ in range(5)])
    ending = asyncio.create_task(hf.run_worker(until_empty=True))
    await gateway.is_asked(2)
    gateway.down = set()
    report = await ending
    assert report.succeeded == 5
    assert report.parked >= 1
    assert {(await hf.get(job.id)).state for job in jobs} == {State.SUCCEEDED}


async def test_a_suspect_asks_no_more_often_than_a_job_is_sent_ahead(
    hf: Holdfast, gateway: Gateway
) -> None:
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=3600)
    convert = depending(hf, gateway, breaker)
    gateway.down = None
    job = await convert.enqueue()
    await make_suspects(hf, [job])
    await hf.breakers.open("gateway")
    await hf.run_worker(until_empty=True)
    assert len(gateway.asked) == 1
    found = await hf.get(job.id)
    assert (found.state, found.snoozes) == (State.QUEUED, 1)
    assert found.run_at - found.created_at >= timedelta(seconds=3600)
