"""What runs around handlers: middleware, and hooks before and after them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    CallNext,
    ConfigurationError,
    Context,
    Filter,
    Holdfast,
    Job,
    JobTimeout,
    Permanent,
    Retry,
    Snooze,
    State,
    UnstorableValue,
)
from holdfast.domain.limits import HOOK_SECONDS_MAX
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, seen_events, signal, working

user: ContextVar[str] = ContextVar("user", default="nobody")


async def run_one(hf: Holdfast, handler: Callable[..., Any], **options: Any) -> Job:
    job = await hf.job(**{"retry": Retry.none, **options})(handler).enqueue()
    await hf.run_worker(until_empty=True)
    return await hf.get(job.id)


async def forever() -> None:
    await asyncio.Event().wait()


class Told:
    """Hooks that write down what they are told."""

    def __init__(self, hf: Holdfast) -> None:
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self.any = asyncio.Event()
        hf.after_run(self.after_run)
        hf.on_failure(self.on_failure)

    async def after_run(self, ctx: Context, result: Any) -> None:
        self.results.append(result)
        self.any.set()

    def on_failure(self, ctx: Context, error: BaseException) -> None:
        self.errors.append(error)
        self.any.set()


@pytest.mark.parametrize("is_async", [True, False], ids=["on the loop", "in a thread"])
async def test_middleware_runs_around_the_handler_and_the_first_is_the_outermost(
    local_hf: Holdfast, is_async: bool
) -> None:
    steps: list[str] = []

    @local_hf.middleware
    async def first(ctx: Context, call_next: CallNext) -> Any:
        steps.append(f"first, around {ctx.name}")
        value = await call_next()
        steps.append("first ends")
        return f"<{value}>"

    @local_hf.before_run
    def before(ctx: Context) -> None:
        steps.append("before")

    @local_hf.middleware
    async def second(ctx: Context, call_next: CallNext) -> Any:
        steps.append("second")
        return await call_next()

    async def work() -> str:
        steps.append("work")
        return "done"

    def plain_work() -> str:
        steps.append("work")
        return "done"

    handler: Callable[[], Any] = work if is_async else plain_work
    job = await run_one(local_hf, handler, name="work")
    assert (job.state, job.result) == (State.SUCCEEDED, "<done>")
    assert steps == ["first, around work", "before", "second", "work", "first ends"]


async def test_handlers_on_the_loop_and_in_threads_see_what_middleware_sets(
    local_hf: Holdfast,
) -> None:
    @local_hf.middleware
    async def sign_in(ctx: Context, call_next: CallNext) -> Any:
        user.set(f"of {ctx.name}")
        return await call_next()

    @local_hf.job
    async def on_loop() -> list[Any]:
        return [user.get(), threading.current_thread() is threading.main_thread()]

    @local_hf.job
    def in_thread() -> list[Any]:
        return [user.get(), threading.current_thread() is threading.main_thread()]

    jobs = await local_hf.enqueue_many([on_loop.call(), in_thread.call()])
    await local_hf.run_worker(until_empty=True)
    results = [(await local_hf.get(job.id)).result for job in jobs]
    assert results == [["of on_loop", True], ["of in_thread", False]]
    assert user.get() == "nobody"


async def test_middleware_enqueues_as_the_handler_does(local_hf: Holdfast) -> None:
    @local_hf.job
    async def follow_up() -> None: ...

    @local_hf.middleware
    async def follow(ctx: Context, call_next: CallNext) -> Any:
        if ctx.name == "work":
            return str((await follow_up.enqueue()).id)
        return await call_next()

    @local_hf.job
    async def work() -> None: ...

    job = await work.options(correlation_id="request-7").enqueue()
    await local_hf.run_worker(until_empty=True)
    (followed,) = (await local_hf.jobs.list(Filter(name="follow_up"))).jobs
    assert (await local_hf.get(job.id)).result == str(followed.id)
    assert followed.correlation_id == "request-7"


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (Permanent("no", code="REFUSED"), State.FAILED, "REFUSED"),
        (ValueError("no"), State.DEAD, "ValueError"),
        (SystemExit(3), State.DEAD, "SystemExit"),
    ],
    ids=lambda value: str(value),
)
async def test_what_middleware_raises_is_the_error_of_the_attempt(
    local_hf: Holdfast, error: BaseException, state: State, code: str
) -> None:
    @local_hf.middleware
    async def refuse(ctx: Context, call_next: CallNext) -> Any:
        raise error

    async def work() -> None:
        pytest.fail("it ran")

    job = await run_one(local_hf, work)
    assert (job.state, job.error_code) == (state, code)


async def test_a_middleware_can_handle_an_error_and_skip_the_handler(local_hf: Holdfast) -> None:
    @local_hf.middleware
    async def handle(ctx: Context, call_next: CallNext) -> Any:
        if ctx.name == "skipped":
            return "skipped"
        try:
            return await call_next()
        except ValueError as error:
            return f"handled: {error}"

    async def skipped() -> None:
        pytest.fail("it ran")

    async def raises() -> None:
        raise ValueError("no")

    assert (await run_one(local_hf, skipped)).result == "skipped"
    assert (await run_one(local_hf, raises)).result == "handled: no"


async def test_a_handler_runs_once_though_middleware_calls_it_twice(local_hf: Holdfast) -> None:
    ran: list[int] = []

    @local_hf.middleware
    async def twice(ctx: Context, call_next: CallNext) -> Any:
        await call_next()
        return await call_next()

    async def work() -> None:
        ran.append(1)

    job = await run_one(local_hf, work)
    assert (job.error_code, ran) == ("RuntimeError", [1])
    assert "the middleware twice called call_next twice" in (job.error_text or "")


async def swallow(ctx: Context, call_next: CallNext) -> Any:
    try:
        return await call_next()
    except BaseException:
        return "swallowed"


async def test_a_middleware_that_catches_everything_keeps_no_timeout_from_counting(
    local_hf: Holdfast,
) -> None:
    local_hf.middleware(swallow)
    told = Told(local_hf)
    job = await run_one(local_hf, forever, timeout_seconds=0.05)
    assert (job.state, job.error_code) == (State.DEAD, "TIMEOUT")
    assert [type(error) for error in told.errors] == [JobTimeout]


async def test_a_timeout_covers_the_middleware_too_and_the_handler_does_not_start_after_it(
    local_hf: Holdfast,
) -> None:
    @local_hf.middleware
    async def slow(ctx: Context, call_next: CallNext) -> Any:
        try:
            await forever()
        except asyncio.CancelledError:
            return await call_next()

    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    job = await run_one(local_hf, work, timeout_seconds=0.05)
    assert (job.error_code, ran) == ("TIMEOUT", [])


async def test_a_middleware_that_catches_everything_keeps_no_cancel_from_its_handler(
    hf: Holdfast,
) -> None:
    hf.middleware(swallow)
    told = Told(hf)
    began, ended = asyncio.Event(), asyncio.Event()

    @hf.job
    async def work() -> None:
        began.set()
        try:
            await forever()
        finally:
            ended.set()

    job = await work.enqueue()
    async with working(hf):
        await signal(began)
        await hf.jobs.cancel(job.id)
        await signal(ended)
    assert (await hf.get(job.id)).state is State.CANCELED
    assert (told.results, told.errors) == ([], [])


async def test_a_middleware_that_catches_everything_keeps_no_stopping_worker_from_a_release(
    local_hf: Holdfast,
) -> None:
    local_hf.middleware(swallow)
    told = Told(local_hf)
    began = asyncio.Event()

    @local_hf.job
    async def work() -> None:
        began.set()
        await forever()

    job = await work.enqueue()
    async with working(local_hf):
        await signal(began)
    released = await local_hf.get(job.id)
    assert (released.state, released.attempts) == (State.QUEUED, 0)
    assert (told.results, told.errors) == ([], [])


async def test_a_hook_before_the_handler_that_raises_fails_the_attempt(local_hf: Holdfast) -> None:
    @local_hf.before_run
    async def check(ctx: Context) -> None:
        raise Permanent("not today", code="CLOSED")

    async def work() -> None:
        pytest.fail("it ran")

    job = await run_one(local_hf, work)
    assert (job.state, job.error_code) == (State.FAILED, "CLOSED")


async def test_hooks_after_the_handler_get_its_result_or_its_own_error(local_hf: Holdfast) -> None:
    told = Told(local_hf)
    error = ValueError("no")

    async def returns() -> dict[str, int]:
        return {"pages": 3}

    async def sets(ctx: Context) -> None:
        ctx.set_result("set")

    def raises() -> None:
        raise error

    for handler in (returns, sets, raises):
        await run_one(local_hf, handler)
    assert told.results == [{"pages": 3}, "set"]
    assert told.errors == [error]
    assert told.errors[0] is error


async def test_hooks_see_the_context_variables_of_the_handler(local_hf: Holdfast) -> None:
    seen: list[str] = []

    @local_hf.middleware
    async def sign_in(ctx: Context, call_next: CallNext) -> Any:
        token = user.set("ann")
        try:
            return await call_next()
        finally:
            user.reset(token)

    @local_hf.after_run
    @local_hf.on_failure
    async def look(ctx: Context, value: Any) -> None:
        seen.append(f"{user.get()}: {value}")

    async def succeeds() -> None:
        user.set(f"{user.get()} and bob")

    def fails() -> None:
        raise ValueError("no")

    await run_one(local_hf, succeeds)
    await run_one(local_hf, fails)
    assert seen == ["ann and bob: None", "ann: no"]


async def test_hooks_hear_of_failures_outside_of_the_handler_too(local_hf: Holdfast) -> None:
    told = Told(local_hf)

    async def odd() -> Any:
        return object()

    @local_hf.job(retry=Retry.none)
    async def picky(number: int) -> None: ...

    assert (await run_one(local_hf, odd)).error_code == "UNSTORABLE_RESULT"
    job = await picky.enqueue(1)
    wrong = '{"number":"many"}'
    await execute(local_hf._database, f"UPDATE jobs SET arguments = '{wrong}'")
    await local_hf.run_worker(until_empty=True)
    assert (await local_hf.get(job.id)).error_code == "BAD_ARGUMENTS"
    assert [type(error) for error in told.errors] == [UnstorableValue, BadArguments]
    assert told.results == []


async def test_a_snooze_is_no_failure(local_hf: Holdfast) -> None:
    told = Told(local_hf)

    @local_hf.job
    async def nap(ctx: Context) -> None:
        raise Snooze(3600)

    await nap.enqueue()
    await local_hf.run_due()
    assert (told.results, told.errors) == ([], [])


async def test_hooks_hear_of_a_handler_that_ignores_its_timeout_while_it_hangs(
    local_url: str,
) -> None:
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait(WAIT_SECONDS_MAX)

    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        told = Told(hf)
        await hf.job(timeout_seconds=0.05, retry=Retry.none)(hang).enqueue()
        async with working(hf):
            try:
                await signal(told.any)
            finally:
                go_on.set()
    (error,) = told.errors
    assert isinstance(error, JobTimeout)
    assert "did not stop within another 0.05 s" in str(error)
    assert told.results == []


@pytest.mark.parametrize("way", ["completing", "failing"])
async def test_hooks_hear_what_a_handler_committed_before_it_ignored_its_timeout(
    local_url: str, way: str
) -> None:
    go_on = threading.Event()
    error = ValueError("committed")

    def hang(ctx: Context) -> None:
        with ctx.completing_sync() if way == "completing" else ctx.failing_sync(error):
            ctx.set_result("committed")
        ctx.set_result("too late")
        go_on.wait(WAIT_SECONDS_MAX)

    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.05) as hf:
        told = Told(hf)
        await hf.job(timeout_seconds=0.05, retry=Retry.none)(hang).enqueue()
        async with working(hf):
            try:
                await signal(told.any)
            finally:
                go_on.set()
    expected: Any = (["committed"], []) if way == "completing" else ([], [error])
    assert (told.results, told.errors) == expected


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_hooks_that_fail_are_logged_and_harm_nothing(
    local_hf: Holdfast, error: BaseException
) -> None:
    def fails(ctx: Context, value: Any) -> None:
        raise error

    local_hf.after_run(fails)
    local_hf.on_failure(fails)
    told = Told(local_hf)

    async def returns() -> str:
        return "done"

    async def raises() -> None:
        raise Permanent("no", code="REFUSED")

    async with seen_events() as seen:
        assert (await run_one(local_hf, returns)).result == "done"
        assert (await run_one(local_hf, raises)).error_code == "REFUSED"
    failed = [(each.fields["name"], each.message) for each in seen.named("hook_failed")]
    kind = type(error).__name__
    assert failed == [
        ("returns", f"the after_run hook fails raised {kind}"),
        ("raises", f"the on_failure hook fails raised {kind}"),
    ]
    assert len(told.results) == len(told.errors) == 1


@fast_forwarding
async def test_a_hook_that_hangs_is_cut_off(local_url: str) -> None:
    began = asyncio.Event()

    async def hang(ctx: Context, result: Any) -> None:
        began.set()
        await forever()

    async def work() -> str:
        return "done"

    async with Holdfast(local_url, **QUICK) as hf, seen_events() as seen:
        hf.after_run(hang)
        job = await hf.job(work).enqueue()
        async with working(hf):
            await signal(began)
            await fast_forward(HOOK_SECONDS_MAX)
            assert await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == "done"
    assert seen.named("hook_failed")[0].message == "the after_run hook hang raised TimeoutError"


async def test_hooks_hear_what_a_block_of_the_handler_committed(hf: Holdfast) -> None:
    told = Told(hf)
    error = ValueError("committed")

    async def completes(ctx: Context) -> None:
        async with ctx.completing():
            ctx.set_result("committed")
        ctx.set_result("too late")
        raise ValueError("too late")

    async def fails(ctx: Context) -> str:
        async with ctx.failing(error):
            pass
        return "too late"

    assert (await run_one(hf, completes)).result == "committed"
    assert (await run_one(hf, fails)).error_code == "ValueError"
    assert told.results == ["committed"]
    assert told.errors == [error]


async def test_a_worker_keeps_the_middleware_that_it_started_with(local_hf: Holdfast) -> None:
    async def late(ctx: Context, call_next: CallNext) -> Any:
        return f"late: {await call_next()}"

    @local_hf.middleware
    async def register(ctx: Context, call_next: CallNext) -> Any:
        if ctx.attempt == 1 and late not in local_hf._middleware.functions:
            local_hf.middleware(late)
        return await call_next()

    @local_hf.job
    async def work() -> str:
        return "done"

    first = await work.enqueue()
    second = await work.enqueue()
    await local_hf.run_worker(until_empty=True, concurrency=1)
    third = await work.enqueue()
    await local_hf.run_worker(until_empty=True)
    results = [(await local_hf.get(job.id)).result for job in (first, second, third)]
    assert results == ["done", "done", "late: done"]


async def takes_one(ctx: Context) -> None: ...
async def takes_three(ctx: Context, call_next: CallNext, more: int) -> None: ...
def plain(ctx: Context, call_next: CallNext) -> None: ...
def yields(ctx: Context) -> Any:
    yield


async def valid(ctx: Context, call_next: CallNext) -> Any: ...


class Instance:
    """An object that can be called."""

    async def __call__(self, ctx: Context, call_next: CallNext) -> Any:
        return await call_next()


@pytest.mark.parametrize(
    ("kind", "function", "said"),
    [
        ("middleware", plain, "the middleware plain must be an async function: async def plain"),
        ("middleware", takes_one, r"the middleware takes_one must accept \(ctx, call_next\): too"),
        ("middleware", takes_three, r"must accept \(ctx, call_next\): missing a required argument"),
        ("middleware", "sentry", "@hf.middleware decorates a function, not 'sentry'"),
        ("before_run", plain, r"the before_run plain must accept \(ctx\): missing a required"),
        ("before_run", yields, "the before_run hook yields must not yield; use @hf.middleware"),
        ("after_run", takes_one, r"the after_run takes_one must accept \(ctx, result\)"),
        ("on_failure", takes_three, r"the on_failure takes_three must accept \(ctx, error\)"),
        ("on_failure", print, None),
        ("middleware", valid, None),
        ("middleware", partial(valid), None),
        ("middleware", Instance(), None),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_a_function_that_can_not_be_called_is_refused_when_it_is_registered(
    local_hf: Holdfast, kind: str, function: Any, said: str | None
) -> None:
    register = getattr(local_hf, kind)
    if said is None:
        assert register(function) is function
        return
    with pytest.raises(ConfigurationError, match=said):
        register(function)


async def test_a_function_is_registered_once(local_hf: Holdfast) -> None:
    local_hf.middleware(swallow)
    with pytest.raises(ConfigurationError, match="the middleware 'swallow' is already registered"):
        local_hf.middleware(swallow)
