"""What handlers see, and what becomes of a job for each way in which its handler can end."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import (
    Context,
    Holdfast,
    Job,
    JobFailed,
    LeaseLost,
    Permanent,
    Retry,
    RetryAfter,
    Snooze,
    State,
    Transient,
    UnstorableValue,
    WrongState,
)
from holdfast.context import Surroundings
from holdfast.domain.codec import Results
from holdfast.domain.job import Lease, Lost
from holdfast.domain.limits import SNOOZES_MAX
from holdfast.domain.outcomes import Outcome, Released
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.worker.executor import Executor
from holdfast.worker.processes.pool import Children
from holdfast.worker.run import Run, Stop
from holdfast.worker.work import Work
from tests.support import hostile
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.jobs import claimed
from tests.support.processes import poll, wait_until
from tests.support.running import (
    QUICK,
    WAIT_SECONDS_MAX,
    Company,
    execute,
    seen_events,
    signal,
    working,
)

LOSE = """UPDATE jobs SET state = 'canceled', fence = fence + 1, lease_owner = NULL,
    lease_expires_at = NULL, finished_at = created_at WHERE state = 'running'"""


async def run_one(hf: Holdfast, handler: Callable[..., Any], **options: Any) -> Job:
    """Define the job, enqueue it, work until nothing is left, and answer what it came to."""
    options = {"retry": Retry.none, **options}
    job = await hf.job(**options)(handler).enqueue()
    await hf.run_worker(until_empty=True)
    return await hf.get(job.id)


async def test_async_and_plain_handlers_get_their_arguments_and_keep_their_results(
    local_hf: Holdfast,
) -> None:
    @local_hf.job
    async def double(ctx: Context, number: int, *, times: int = 2) -> dict[str, Any]:
        return {"number": number * times, "attempt": ctx.attempt}

    @local_hf.job
    def shout(text: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return text.upper()

    doubled, shouted = await local_hf.enqueue_many([double.call(4), shout.call("hello")])
    await local_hf.run_worker(until_empty=True)
    assert await local_hf.result(doubled.id) == {"number": 8, "attempt": 1}
    assert await local_hf.result(shouted.id) == "HELLO"


async def test_plain_handlers_run_side_by_side_in_threads(local_hf: Holdfast) -> None:
    together = threading.Barrier(4)

    @local_hf.job
    def meet() -> int:
        return together.wait(WAIT_SECONDS_MAX)

    await local_hf.enqueue_many([meet.call() for _ in range(4)])
    report = await local_hf.run_worker(concurrency=4, until_empty=True)
    assert report.succeeded == 4


async def test_a_plain_function_around_an_async_one_is_awaited(local_hf: Holdfast) -> None:
    async def inner() -> str:
        return "done"

    @functools.wraps(inner)
    def outer() -> Any:
        return inner()

    assert (await run_one(local_hf, outer, name="outer")).result == "done"


async def test_a_partial_can_be_a_job_if_it_is_given_a_name(local_hf: Holdfast) -> None:
    def add(left: int, right: int) -> int:
        return left + right

    assert (await run_one(local_hf, functools.partial(add, 1, right=2), name="add")).result == 3


async def test_what_a_handler_knows_of_its_job(local_hf: Holdfast) -> None:
    @local_hf.job(queue="images")
    async def look(ctx: Context) -> dict[str, Any]:
        return {
            "job_id": str(ctx.job_id),
            "name": ctx.name,
            "queue": ctx.queue,
            "tenant": ctx.tenant,
            "correlation_id": ctx.correlation_id,
            "attempts": [ctx.attempt, ctx.max_attempts],
            "fence": ctx.fence,
        }

    options = look.options(tenant="acme", correlation_id="request-7", max_attempts=9, tags=["a"])
    job = await options.enqueue()
    await local_hf.run_worker(until_empty=True)
    ended = await local_hf.get(job.id)
    assert ended.result == {
        "job_id": str(job.id),
        "name": "look",
        "queue": "images",
        "tenant": "acme",
        "correlation_id": "request-7",
        "attempts": [1, 9],
        "fence": 1,
    }
    assert ended.tags == ("a",)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_job_enqueued_by_a_handler_belongs_to_its_tenant_and_request(
    local_hf: Holdfast, kind: str
) -> None:
    @local_hf.job
    async def child() -> None: ...

    @local_hf.job
    async def async_parent() -> str:
        return str((await child.enqueue()).id)

    @local_hf.job
    def sync_parent() -> str:
        return str(child.enqueue_sync().id)

    parent = async_parent if kind == "async" else sync_parent
    plain = await parent.enqueue()
    chosen = await parent.options(tenant="acme", correlation_id="request-7", tags=["t"]).enqueue()
    await local_hf.run_worker(until_empty=True)
    children = {
        str(job.id): job for job in (await local_hf.jobs.list()).jobs if job.name == "child"
    }
    of_plain = children[await local_hf.result(plain.id)]
    assert (of_plain.tenant, of_plain.correlation_id) == ("default", str(plain.id))
    of_chosen = children[await local_hf.result(chosen.id)]
    assert (of_chosen.tenant, of_chosen.correlation_id) == ("acme", "request-7")
    assert of_chosen.tags == ()
    await asyncio.to_thread(local_hf.close_sync)


async def test_a_handler_may_enqueue_for_another_tenant_and_request(local_hf: Holdfast) -> None:
    @local_hf.job
    async def child() -> None: ...

    @local_hf.job
    async def parent() -> str:
        chosen = child.options(tenant="other", correlation_id="another")
        return str((await chosen.enqueue()).id)

    await parent.options(tenant="acme").enqueue()
    await local_hf.run_worker(until_empty=True)
    (made,) = [job for job in (await local_hf.jobs.list()).jobs if job.name == "child"]
    assert (made.tenant, made.correlation_id) == ("other", "another")


async def test_context_variables_do_not_leak_from_job_to_job(local_hf: Holdfast) -> None:
    user: ContextVar[str | None] = ContextVar("user", default=None)

    @local_hf.job
    async def in_a_task(name: str) -> str | None:
        before = user.get()
        user.set(name)
        return before

    @local_hf.job
    def in_a_thread(name: str) -> str | None:
        before = user.get()
        user.set(name)
        return before

    calls = [job.call(name) for job in (in_a_task, in_a_thread) for name in ("ann", "bob", "cy")]
    jobs = await local_hf.enqueue_many(calls)
    await local_hf.run_worker(concurrency=1, until_empty=True)
    assert [await local_hf.result(job.id) for job in jobs] == [None] * 6


class OwnError(Exception):
    code = "OWN_CODE"


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


def raising_async(error: BaseException) -> Callable[[], Any]:
    async def handler() -> None:
        raise error

    return handler


@pytest.mark.parametrize("make", [raising, raising_async])
@pytest.mark.parametrize(
    ("error", "options", "state", "code"),
    [
        (ValueError("no"), {}, State.DEAD, "ValueError"),
        (OwnError("no"), {}, State.DEAD, "OWN_CODE"),
        (Permanent("no"), {}, State.FAILED, "PERMANENT"),
        (Permanent("no", code="GONE"), {}, State.FAILED, "GONE"),
        (Transient("no"), {}, State.DEAD, "TRANSIENT"),
        (ValueError("no"), {"permanent": [ValueError]}, State.FAILED, "ValueError"),
        (UnicodeError("no"), {"permanent": [ValueError]}, State.FAILED, "UnicodeError"),
        (OwnError("no"), {"permanent": ["OWN_CODE"]}, State.FAILED, "OWN_CODE"),
        (Transient("no", code="A"), {"permanent": ["A"]}, State.DEAD, "A"),
        (Permanent("no", code="A"), {"transient": ["A"]}, State.FAILED, "A"),
        (Permanent("no"), {"transient": [Permanent]}, State.FAILED, "PERMANENT"),
        (
            KeyError("no"),
            {"permanent": [LookupError], "transient": [KeyError]},
            State.DEAD,
            "KeyError",
        ),
        (RetryAfter(5), {}, State.DEAD, "RETRY_AFTER"),
        (SystemExit(3), {}, State.DEAD, "SystemExit"),
        (SystemExit(3), {"permanent": [SystemExit]}, State.FAILED, "SystemExit"),
        (KeyboardInterrupt(), {}, State.DEAD, "KeyboardInterrupt"),
        (asyncio.CancelledError(), {}, State.DEAD, "CancelledError"),
        (StopIteration(), {}, State.DEAD, "RuntimeError"),
        (UnreadableError(), {}, State.DEAD, "UnreadableError"),
        (
            BaseExceptionGroup("two", [SystemExit(1), OSError()]),
            {},
            State.DEAD,
            "BaseExceptionGroup",
        ),
        (ExceptionGroup("one", [Permanent("no", code="GONE")]), {}, State.FAILED, "GONE"),
    ],
    ids=repr,
)
async def test_an_error_ends_its_job_as_its_class_and_the_lists_say(
    local_hf: Holdfast,
    make: Callable[[BaseException], Callable[[], Any]],
    error: BaseException,
    options: dict[str, Any],
    state: State,
    code: str,
) -> None:
    @local_hf.job
    async def neighbor() -> None: ...

    beside = await neighbor.enqueue()
    job = await run_one(local_hf, make(error), name="raiser", **options)
    assert (job.state, job.error_code) == (state, code)
    assert (await local_hf.get(beside.id)).state is State.SUCCEEDED
    (attempt,) = await local_hf.jobs.attempts(job.id)
    assert (attempt.outcome, attempt.error_code) == ("failed", code)
    with pytest.raises(JobFailed, match=code):
        await local_hf.result(job.id)


async def test_a_transient_error_is_tried_again_until_the_attempts_are_used_up(
    hf: Holdfast,
) -> None:
    seen: list[int] = []

    def fail(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise ConnectionError(f"attempt {ctx.attempt}")

    job = await run_one(hf, fail, retry=Retry.schedule([0, 0.01]))
    assert seen == [1, 2, 3]
    assert (job.state, job.attempts, job.error_code) == (State.DEAD, 3, "ConnectionError")
    attempts = await hf.jobs.attempts(job.id)
    assert [(entry.attempt, entry.fence) for entry in attempts] == [(1, 1), (2, 3), (3, 5)]


async def test_retry_after_waits_at_least_as_long_as_the_handler_says(local_hf: Holdfast) -> None:
    @local_hf.job(retry=Retry.schedule([0]))
    async def limited() -> None:
        raise RetryAfter(3600, "too many requests")

    job = await limited.enqueue()
    await local_hf.run_worker(until_empty=True)
    waiting = await local_hf.get(job.id)
    assert (waiting.state, waiting.error_code) == (State.QUEUED, "RETRY_AFTER")
    assert waiting.started_at is not None
    assert (waiting.run_at - waiting.started_at).total_seconds() >= 3600


async def test_a_snooze_uses_up_no_attempt(local_hf: Holdfast) -> None:
    @local_hf.job(retry=Retry.none)
    async def sleepy(ctx: Context) -> list[int]:
        if (await local_hf.get(ctx.job_id)).snoozes < 4:
            raise Snooze(0.01)
        return [ctx.attempt, ctx.max_attempts]

    job = await sleepy.enqueue()
    report = await local_hf.run_worker(until_empty=True)
    assert await local_hf.result(job.id) == [1, 1]
    assert (report.snoozed, (await local_hf.get(job.id)).snoozes) == (4, 4)


async def test_a_job_can_not_snooze_for_ever(hf: Holdfast, store_url: str) -> None:
    @hf.job(retry=Retry.none)
    async def sleepy() -> None:
        raise Snooze(3600)

    job = await sleepy.enqueue()
    await execute(store_url, f"UPDATE jobs SET snoozes = {SNOOZES_MAX - 1}")
    await hf.run_worker(until_empty=True)
    assert (await hf.get(job.id)).state is State.QUEUED
    await hf.jobs.retry(job.id)
    await hf.run_worker(until_empty=True)
    ended = await hf.get(job.id)
    assert (ended.state, ended.error_code) == (State.DEAD, "SNOOZED_TOO_OFTEN")


async def test_arguments_of_another_type_fail_at_once(local_hf: Holdfast, local_url: str) -> None:
    async with Holdfast(local_url) as before:

        @before.job(name="resize")
        async def old(width: str) -> None: ...

        job = await old.enqueue("wide")

    @local_hf.job(name="resize")
    async def new(width: int) -> None: ...

    await local_hf.run_worker(until_empty=True)
    ended = await local_hf.get(job.id)
    assert (ended.state, ended.attempts) == (State.FAILED, 1)
    assert ended.error_code == "BAD_ARGUMENTS"


async def test_an_async_handler_is_canceled_at_its_timeout(local_hf: Holdfast) -> None:
    cleaned: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    job = await run_one(local_hf, forever, timeout_seconds=0.05)
    assert (job.state, job.error_code) == (State.DEAD, "TIMEOUT")
    assert job.error_text is not None
    assert "took longer than 0.05 s" in job.error_text
    assert cleaned == ["up"]


async def test_a_timeout_stays_one_when_the_handler_turns_it_into_an_error(
    local_hf: Holdfast,
) -> None:
    async def turns() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("interrupted") from None

    job = await run_one(local_hf, turns, timeout_seconds=0.05)
    assert job.error_code == "TIMEOUT"
    assert job.error_text is not None
    assert "interrupted" in job.error_text


async def test_a_timeout_is_permanent_if_the_job_says_so(local_hf: Holdfast) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    retry = Retry.schedule([0])
    job = await run_one(local_hf, forever, timeout_seconds=0.05, permanent=["TIMEOUT"], retry=retry)
    assert (job.state, job.attempts) == (State.FAILED, 1)


async def test_a_timeout_inside_a_handler_is_its_own_affair(local_hf: Holdfast) -> None:
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "went on"
        return "did not wait"

    assert (await run_one(local_hf, patient, timeout_seconds=20)).result == "went on"


async def test_a_thread_that_sees_its_timeout_and_returns_has_timed_out(
    local_hf: Holdfast,
) -> None:
    seen: list[bool] = []

    def listens(ctx: Context) -> str:
        seen.extend([ctx.canceled, ctx.wait_canceled(WAIT_SECONDS_MAX), ctx.canceled])
        return "half of it"

    job = await run_one(local_hf, listens, timeout_seconds=0.5)
    assert seen == [False, True, True]
    assert (job.state, job.error_code, job.result) == (State.DEAD, "TIMEOUT", None)


@fast_forwarding
async def test_a_thread_that_finishes_soon_after_its_timeout_has_succeeded(local_url: str) -> None:
    timed_out = threading.Event()

    def nearly_in_time() -> str:
        timed_out.wait(WAIT_SECONDS_MAX)
        return "all of it"

    async with Holdfast(local_url, **QUICK) as hf, seen_events() as seen:
        running = asyncio.create_task(run_one(hf, nearly_in_time, timeout_seconds=30))
        await seen.first("start")
        await fast_forward(30)
        timed_out.set()
        job = await running
    assert (job.state, job.result) == (State.SUCCEEDED, "all of it")


async def test_a_thread_that_gives_up_at_its_timeout_has_timed_out(local_hf: Holdfast) -> None:
    def gives_up(ctx: Context) -> None:
        while not ctx.wait_canceled(1):
            pass
        raise RuntimeError("gave up")

    assert (await run_one(local_hf, gives_up, timeout_seconds=0.05)).error_code == "TIMEOUT"


class Deaf:
    """Handlers that ignore the request to stop, until `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.told = 0

    async def in_a_task(self) -> None:
        while not self.go.is_set():
            try:
                await poll(self.go.is_set)
            except asyncio.CancelledError:
                self.told += 1
        raise RuntimeError("nobody hears this")

    def in_a_thread(self) -> None:
        self.go.wait(WAIT_SECONDS_MAX)
        raise RuntimeError("nobody hears this")


class Others:
    """Jobs that find out how many slots are free."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._company = Company()
        self._stay = hf.job(name="stay")(self._be_counted)

    async def _be_counted(self) -> None:
        await self._company.stay("others", 5)

    async def most_at_once(self) -> int:
        """Run more of them than there are slots; answer how many ran at the same time."""
        self._company = Company()
        for job in await self._hf.enqueue_many([self._stay.call() for _ in range(6)]):
            await self._hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        return self._company.most("others")

    async def have_slots(self, count: int) -> None:
        async def have() -> bool:
            return await self.most_at_once() == count

        await wait_until(have, f"{count} free slots")


@pytest.mark.parametrize("kind", ["in_a_task", "in_a_thread"])
async def test_a_handler_that_ignores_its_timeout_keeps_its_slot_until_it_ends(
    local_url: str, kind: str
) -> None:
    deaf = Deaf()
    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        handler = hf.job(timeout_seconds=0.05, retry=Retry.none)(getattr(deaf, kind))
        others = Others(hf)
        job = await handler.enqueue()
        try:
            async with seen_events() as seen, working(hf, concurrency=3):
                with pytest.raises(JobFailed, match=r"TIMEOUT: .* within another 0\.05 s"):
                    await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
                assert await others.most_at_once() == 2
                assert len(seen.named("hung")) == 1
                deaf.go.set()
                await others.have_slots(3)
        finally:
            deaf.go.set()
        assert (await hf.get(job.id)).error_code == "TIMEOUT"
        assert seen.named("lost") == []


async def test_a_handler_that_swallows_its_cancellation_and_ends_in_time_has_its_say(
    local_hf: Holdfast,
) -> None:
    async def swallows() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "went on"
        return "was not stopped"

    assert (await run_one(local_hf, swallows, timeout_seconds=0.05)).result == "went on"


@pytest.mark.parametrize("kind", ["in_a_task", "in_a_thread"])
async def test_a_canceled_handler_that_does_not_stop_is_told_of_and_writes_nothing(
    local_url: str, kind: str
) -> None:
    deaf = Deaf()
    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        job = await hf.job(getattr(deaf, kind)).enqueue()
        try:
            async with seen_events() as seen, working(hf, concurrency=2):
                await seen.first("start")
                canceled = await hf.jobs.cancel(job.id)
                await seen.first("hung")
                deaf.go.set()
        finally:
            deaf.go.set()
        assert await hf.get(job.id) == canceled
        assert len(seen.named("lost")) == 1


@fast_forwarding
async def test_a_canceled_thread_keeps_its_slot_past_its_timeout(local_url: str) -> None:
    deaf = Deaf()
    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        others = Others(hf)
        job = await hf.job(timeout_seconds=30)(deaf.in_a_thread).enqueue()
        try:
            async with seen_events() as seen, working(hf, concurrency=3):
                await seen.first("start")
                await hf.jobs.cancel(job.id)
                await seen.first("hung")
                await fast_forward(30)
                assert await others.most_at_once() == 2
                deaf.go.set()
                await others.have_slots(3)
        finally:
            deaf.go.set()
        assert (await hf.get(job.id)).state is State.CANCELED
        assert len(seen.named("hung")) == 1


@pytest.mark.parametrize(
    ("why", "outcome"), [(Stop.SHUTDOWN, Released()), (Stop.LOST, None)], ids=["shutdown", "lost"]
)
async def test_a_handler_that_is_told_to_stop_before_its_first_step_never_begins(
    local_hf: Holdfast, why: Stop, outcome: Outcome | None
) -> None:
    """A task that is canceled then runs nothing at all, and its slot would never be free again."""

    @local_hf.job
    async def work() -> None:
        pytest.fail("it has begun")

    seam, job = Seam(), claimed(name="work")
    threads = seam.threads("handlers", 1)
    children = Children(None, 1, Settings(), seam, local_hf._metrics)
    executor = Executor(
        Work(local_hf._definitions, {}, children, None, local_hf._desk.cipher),
        Settings(),
        seam,
        threads,
        lambda *told: pytest.fail(f"{told}"),
    )
    store, loop = await local_hf._store(), asyncio.get_running_loop()
    run = Run(job, Context(job, Surroundings(store, {}, Results(1000), seam, loop)), 0.0)
    run.task = asyncio.create_task(executor.execute(run))
    run.request_stop(why)
    assert await run.task == outcome
    threads.close()


async def test_a_completed_job_stays_succeeded_though_its_handler_hangs(local_url: str) -> None:
    deaf = Deaf()

    async def complete(ctx: Context) -> None:
        async with ctx.completing():
            ctx.set_result("done")
        await deaf.in_a_task()

    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        # Long enough to complete, whatever else the machine has to do.
        job = await hf.job(timeout_seconds=2)(complete).enqueue()
        try:
            async with seen_events() as seen, working(hf, concurrency=2):
                await seen.first("hung")
                assert await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == "done"
                deaf.go.set()
        finally:
            deaf.go.set()
        assert (await hf.get(job.id)).state is State.SUCCEEDED


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_progress_is_recorded_while_the_job_runs(hf: Holdfast, kind: str) -> None:
    reported, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @hf.job
    async def in_a_task(ctx: Context) -> None:
        await ctx.progress({"done": 3, "of": 10})
        reported.set()
        await go.wait()

    @hf.job
    def in_a_thread(ctx: Context) -> None:
        ctx.progress_sync({"done": 3, "of": 10})
        loop.call_soon_threadsafe(reported.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(WAIT_SECONDS_MAX)

    job = await (in_a_task if kind == "async" else in_a_thread).enqueue()
    async with working(hf):
        await signal(reported)
        now = await hf.get(job.id)
        assert (now.state, now.progress) == (State.RUNNING, {"done": 3, "of": 10})
        go.set()
        await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_progress_sync_on_the_event_loop_is_refused_instead_of_hanging(
    local_hf: Holdfast,
) -> None:
    async def mistaken(ctx: Context) -> None:
        ctx.progress_sync(1)

    job = await run_one(local_hf, mistaken)
    assert job.error_text is not None
    assert "await ctx.progress" in job.error_text


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_progress_of_a_lost_lease_raises_and_nothing_is_written(
    hf: Holdfast, store_url: str, kind: str
) -> None:
    raised: list[str] = []
    loop = asyncio.get_running_loop()

    @hf.job
    async def in_a_task(ctx: Context) -> None:
        await execute(store_url, LOSE)
        try:
            await ctx.progress(1)
        except LeaseLost as error:
            raised.append(str(error))
            raise

    @hf.job
    def in_a_thread(ctx: Context) -> None:
        asyncio.run_coroutine_threadsafe(execute(store_url, LOSE), loop).result(WAIT_SECONDS_MAX)
        try:
            ctx.progress_sync(1)
        except LeaseLost as error:
            raised.append(str(error))
            raise

    job = await (in_a_task if kind == "async" else in_a_thread).enqueue()
    async with seen_events() as seen:
        report = await hf.run_worker(until_empty=True)
    assert raised == [str(LeaseLost(job.id, 1))]
    lost = await hf.get(job.id)
    assert (lost.state, lost.progress, lost.fence) == (State.CANCELED, None, 2)
    assert report.lost == 1
    assert [event.fields["job_id"] for event in seen.named("lost")] == [job.id]


async def test_the_keeper_finds_a_lost_lease_and_the_handler_is_stopped(store_url: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    async with Holdfast(store_url, **QUICK, renew_seconds=0.2) as hf:

        @hf.job
        async def forever() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        job = await forever.enqueue()
        async with seen_events() as seen, working(hf):
            await signal(started)
            await execute(store_url, LOSE)
            await signal(stopped)
            await seen.first("lost")
        assert (await hf.get(job.id)).fence == 2


async def test_what_a_handler_returns_after_its_lease_was_lost_is_not_written(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def robbed() -> str:
        await execute(store_url, LOSE)
        return "too late"

    job = await robbed.enqueue()
    async with seen_events() as seen:
        report = await hf.run_worker(until_empty=True)
    assert (report.succeeded, report.lost) == (0, 1)
    lost = await hf.get(job.id)
    assert (lost.state, lost.result, lost.fence) == (State.CANCELED, None, 2)
    assert len(seen.named("lost")) == 1


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_canceling_a_running_job_stops_its_handler(hf: Holdfast, kind: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @hf.job
    async def in_a_task() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @hf.job
    def in_a_thread(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        if ctx.wait_canceled(WAIT_SECONDS_MAX):
            loop.call_soon_threadsafe(stopped.set)

    job = await (in_a_task if kind == "async" else in_a_thread).enqueue()
    async with working(hf):
        await signal(started)
        canceled = await hf.jobs.cancel(job.id)
        assert (canceled.state, canceled.error_code) == (State.CANCELED, "CANCELED")
        await signal(stopped)
    (attempt,) = await hf.jobs.attempts(job.id)
    assert attempt.outcome == "canceled"
    with pytest.raises(JobFailed, match="ended as canceled"):
        await hf.result(job.id)


async def test_a_waiting_job_can_be_canceled_and_an_ended_one_can_not(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    waiting = await nothing.enqueue()
    assert (await hf.jobs.cancel(waiting.id)).state is State.CANCELED
    assert await hf.jobs.attempts(waiting.id) == []
    with pytest.raises(WrongState, match="already ended as canceled"):
        await hf.jobs.cancel(waiting.id)
    assert str(await hf.run_worker(until_empty=True)) == "nothing to do"


class Cryptic(Exception):
    """An error that can't be asked for anything."""

    @property
    def code(self) -> str:
        raise RuntimeError("no code")

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raises", "code"),
    [
        (lambda: RetryAfter("soon", "busy"), "ValueError"),  # type: ignore[arg-type]
        (lambda: Snooze(None, "busy"), "TypeError"),  # type: ignore[arg-type]
        (lambda: Snooze(float("nan")), "ValueError"),
        (lambda: RetryAfter(float("nan")), "ValueError"),
        (Cryptic, "Cryptic"),
    ],
    ids=[
        "retry after a text",
        "snooze without a number",
        "snooze for not a number",
        "retry after not a number",
        "no code and no text",
    ],
)
async def test_an_error_that_makes_no_sense_fails_its_job_and_not_the_worker(
    local_hf: Holdfast, raises: Callable[[], Exception], code: str
) -> None:
    async def senseless(ctx: Context) -> None:
        raise raises()

    ended = await run_one(local_hf, senseless)
    assert (ended.state, ended.error_code) == (State.DEAD, code)


async def test_a_retry_policy_that_raises_fails_its_job_and_not_the_worker(
    local_hf: Holdfast,
) -> None:
    async def failing(ctx: Context) -> None:
        raise ValueError("no")

    @local_hf.job
    async def neighbor() -> None: ...

    beside = await neighbor.enqueue()
    ended = await run_one(local_hf, failing, retry=hostile.HostileRetry(max_attempts=3))
    assert (ended.state, ended.error_code) == (State.FAILED, "UNJUDGED")
    assert ended.error_text == "the worker could not classify the end of the attempt: SystemExit"
    assert (await local_hf.get(beside.id)).state is State.SUCCEEDED


class Refusing(logging.Handler):
    """An application's own handler, with a fault in it."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no log today")


async def test_a_log_handler_that_raises_costs_no_job_its_end(local_hf: Holdfast) -> None:
    async def quiet(ctx: Context) -> str:
        return "done"

    async with seen_events():
        handler = Refusing()
        logging.getLogger("holdfast").addHandler(handler)
        try:
            ended = await run_one(local_hf, quiet)
        finally:
            logging.getLogger("holdfast").removeHandler(handler)
    assert (ended.state, ended.result) == (State.SUCCEEDED, "done")


class Receipt:
    pass


def set_and_return(ctx: Context, returned: str | None) -> str | None:
    ctx.set_result("replaced")
    ctx.set_result("set")
    return returned


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_result_set_without_completing_is_kept_unless_the_handler_returns_one(
    local_hf: Holdfast, kind: str
) -> None:
    async def set_it(ctx: Context, returned: str | None) -> str | None:
        return set_and_return(ctx, returned)

    function = local_hf.job(set_it if kind == "async" else set_and_return)
    jobs = [await function.enqueue(returned) for returned in (None, "returned")]
    await local_hf.run_worker(until_empty=True)
    assert [(await local_hf.get(job.id)).result for job in jobs] == ["set", "returned"]


async def test_a_result_set_before_the_completing_block_is_recorded_by_it(
    local_hf: Holdfast,
) -> None:
    async def complete(ctx: Context) -> None:
        ctx.set_result("set before")
        async with ctx.completing():
            pass
        ctx.set_result(Receipt())  # too late: it neither counts nor fails the job

    ended = await run_one(local_hf, complete)
    assert (ended.state, ended.result) == (State.SUCCEEDED, "set before")


async def test_a_set_result_that_cannot_be_stored_fails_its_job(local_hf: Holdfast) -> None:
    async def sell(ctx: Context) -> None:
        ctx.set_result({"receipt": Receipt()})

    ended = await run_one(local_hf, sell)
    assert (ended.state, ended.error_code) == (State.FAILED, "UNSTORABLE_RESULT")


async def test_a_result_that_cannot_be_stored_fails_its_job_at_once_and_says_where(
    local_hf: Holdfast,
) -> None:
    async def sell(ctx: Context) -> Any:
        return {"orders": [{"receipt": Receipt()}]}

    ended = await run_one(local_hf, sell, retry=Retry(max_attempts=3))
    assert (ended.state, ended.attempts, ended.result) == (State.FAILED, 1, None)
    assert ended.error_code == "UNSTORABLE_RESULT"
    assert (ended.error_text or "").startswith(
        "the result can't be stored: $.orders[0].receipt: an object of type"
        " tests.worker.test_handlers.Receipt can't be stored in JSON"
    )


async def test_progress_that_cannot_be_stored_fails_where_it_is_reported(
    local_hf: Holdfast,
) -> None:
    async def sell(ctx: Context) -> Any:
        with pytest.raises(UnstorableValue, match=r"\$\.done: NaN"):
            await ctx.progress({"done": math.nan})
        await ctx.progress({"done": Receipt()})

    ended = await run_one(local_hf, sell, retry=Retry(max_attempts=3))
    assert (ended.state, ended.attempts) == (State.FAILED, 1)
    assert (ended.error_code, ended.progress) == ("UNSTORABLE_PROGRESS", None)


async def test_completing_commits_nothing_with_a_result_that_cannot_be_stored(
    local_url: str,
) -> None:
    async def complete(ctx: Context, result: str) -> None:
        async with ctx.completing() as connection:
            await connection.execute("CREATE TABLE sold (item)")
            ctx.set_result(Receipt() if result == "object" else "x" * 5000)

    async with Holdfast(local_url, result_bytes_max=1000, **QUICK) as hf:
        function = hf.job(complete)
        jobs = [await function.enqueue(kind) for kind in ("object", "large")]
        await hf.run_worker(until_empty=True)
        ended = [await hf.get(job.id) for job in jobs]
    assert {(job.state, job.error_code) for job in ended} == {(State.FAILED, "UNSTORABLE_RESULT")}


async def test_a_setting_replaces_what_cannot_be_stored(local_url: str) -> None:
    async def sell(ctx: Context) -> Any:
        await ctx.progress({"done": math.nan})
        return {"mean": math.nan, "large": "x" * 5000}

    async with Holdfast(
        local_url, result_bytes_max=1000, unstorable_results="replace", **QUICK
    ) as hf:
        ended = await run_one(hf, sell)
    assert (ended.state, ended.progress) == (State.SUCCEEDED, {"done": "NaN"})
    assert ended.result["holdfast"] == "result too large"


class NotedRenewals(SqliteStore):
    """Notes the renewal that follows one which found a lease lost."""

    def __init__(self, path: str, seam: Seam, note: Callable[[], object]) -> None:
        super().__init__(path, seam)
        self._note = note
        self._found_lost = False

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        if self._found_lost:
            self._note()
        lost = await super().renew(leases, lease_seconds)
        self._found_lost = self._found_lost or len(lost) > 0
        return lost


class NotingHoldfast(Holdfast):
    """Sets `told` once the keeper has told the worker of a lost lease."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.told = asyncio.Event()
        self._tests_loop = asyncio.get_running_loop()
        super().__init__(url, **settings)

    def _make_store(self) -> Store:
        note = functools.partial(self._tests_loop.call_soon_threadsafe, self.told.set)
        return NotedRenewals(self._database.removeprefix("sqlite:///"), self._seam, note)


async def test_what_follows_a_completed_block_is_not_canceled_for_its_lost_lease(
    local_url: str,
) -> None:
    """The keeper finds the job ended: by the handler's own transaction, so nothing is lost."""
    hf = NotingHoldfast(local_url, **QUICK, renew_seconds=0.1)
    async with hf:

        @hf.job
        async def complete(ctx: Context) -> None:
            async with ctx.completing():
                ctx.set_result("done")
            await signal(hf.told)
            followed.set()

        @hf.job
        async def neighbor() -> None:  # without it there would be nothing to renew
            await signal(hf.told)

        followed = asyncio.Event()
        job, _ = await hf.enqueue_many([complete.call(), neighbor.call()])
        report = await hf.run_worker(until_empty=True)
        ended = await hf.get(job.id)
    assert (ended.state, ended.result) == (State.SUCCEEDED, "done")
    assert (report.succeeded, report.lost) == (2, 0)
    assert followed.is_set()


async def test_enqueueing_inside_a_completing_block_on_sqlite_is_refused_at_once(
    local_hf: Holdfast,
) -> None:
    @local_hf.job
    async def other(ctx: Context) -> None: ...

    async def complete(ctx: Context) -> None:
        async with ctx.completing():
            await other.enqueue()

    ended = await run_one(local_hf, complete)
    assert (ended.state, ended.error_code) == (State.DEAD, "StoreRefused")
    assert "would wait for itself" in (ended.error_text or "")
