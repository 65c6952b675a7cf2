"""Handlers in child processes: what they see, how they end, and what their end does to others."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast import ConfigurationError, Context, Holdfast, Job, State
from holdfast.domain.outcomes import HandedBack
from holdfast.runtime.seam import Seam
from holdfast.testing import sandbox
from holdfast.testing.borrowed import borrowed
from holdfast.worker.processes.messages import Ended
from tests.support import hostile
from tests.support.children import all_gone, is_alive, progress_of, run_all
from tests.support.processes import ROOT, wait_until
from tests.support.running import WAIT_SECONDS_MAX, execute, seen_events, working
from tests.worker import child_jobs

pytestmark = pytest.mark.heavy

BROKEN_STARTS = {
    child_jobs.BROKEN_IMPORT: "this module can't be imported in a child",
    child_jobs.BROKEN_RESOURCE: "the greeting is away",
    child_jobs.BROKEN_SPEECH: "sent an invalid message",
}
LOSE = """UPDATE jobs SET fence = fence + 1, attempt = attempt + 1 WHERE state = 'running'"""


@pytest.fixture
async def hf(local_url: str) -> AsyncIterator[Holdfast]:
    async with borrowed(child_jobs.hf, local_url, Seam()):
        yield child_jobs.hf


async def test_a_handler_in_a_child_gets_what_any_other_gets(hf: Holdfast) -> None:
    options = child_jobs.look.options(tenant="acme", correlation_id="request-7", max_attempts=9)
    job = await options.enqueue("word", times=3)
    (ended,) = await run_all(hf, job)
    seen = ended.result
    child = seen.pop("pid")
    assert child == seen.pop("group") != os.getpid()
    assert seen.pop("greeting") != f"hello from {os.getpid()}"
    assert seen == {
        "words": ["word"] * 3,
        "job_id": str(job.id),
        "name": "look",
        "queue": "images",
        "tenant": "acme",
        "correlation_id": "request-7",
        "attempts": [1, 9],
        "fence": 1,
        "parent": os.getpid(),
        "on_main_thread": True,
        "title": "holdfast-child" if sys.platform == "linux" else None,
        "folder": os.getcwd(),
        "path": sys.path,
    }
    assert not is_alive(child)


async def test_a_result_that_a_handler_in_a_child_sets_is_kept(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.set_result.enqueue())
    assert (ended.state, ended.result) == (State.SUCCEEDED, {"done": True})


async def test_models_and_dates_reach_a_child_and_come_back(hf: Holdfast) -> None:
    line = child_jobs.Line(sku="tea", price=Decimal("1.5"), shownAs="Tea")
    job = await child_jobs.raise_prices.enqueue([line], date(2026, 1, 2))
    lie = await child_jobs.lie_about_lines.enqueue()
    ended, failed = await run_all(hf, job, lie)
    assert ended.result == {"2026-01-02": [{"sku": "tea", "price": "3.0", "shown_as": "Tea"}]}
    raised = line.model_copy(update={"price": Decimal("3.0")})
    assert await hf.result(job) == {date(2026, 1, 2): [raised]}
    assert (failed.state, failed.error_code) == (State.FAILED, "UNSTORABLE_RESULT")


async def test_children_run_side_by_side_and_are_reused(hf: Holdfast) -> None:
    jobs = await hf.enqueue_many([child_jobs.which.call() for _ in range(20)])
    ended = await run_all(hf, *jobs, concurrency=2)
    assert len({job.result for job in ended}) == 2


async def test_a_child_that_died_while_it_was_idle_costs_no_job_an_attempt(hf: Holdfast) -> None:
    first = await child_jobs.which.enqueue()
    async with working(hf, concurrency=1):
        idle = await hf.result(first.id, timeout_seconds=WAIT_SECONDS_MAX)
        os.kill(idle, signal.SIGKILL)
        await all_gone([idle])
        second = await child_jobs.which.enqueue()
        assert await hf.result(second.id, timeout_seconds=WAIT_SECONDS_MAX) != idle
    assert (await hf.get(second.id)).attempts == 1


async def test_a_child_is_replaced_after_so_many_jobs(local_url: str) -> None:
    async with borrowed(child_jobs.reused_twice, local_url, Seam()):
        hf = child_jobs.reused_twice
        jobs = await hf.enqueue_many([child_jobs.which_of_twice.call() for _ in range(6)])
        ended = await run_all(hf, *jobs, concurrency=1)
    assert [job.state for job in ended] == [State.SUCCEEDED] * 6
    assert len({job.result for job in ended}) == 3


async def test_a_child_that_has_grown_too_large_is_replaced(local_url: str) -> None:
    async with borrowed(child_jobs.soon_too_large, local_url, Seam()):
        hf = child_jobs.soon_too_large
        jobs = await hf.enqueue_many([child_jobs.which_of_large.call() for _ in range(3)])
        ended = await run_all(hf, *jobs, concurrency=1)
    assert len({job.result for job in ended}) == 3


async def test_context_variables_do_not_leak_from_job_to_job_in_a_child(hf: Holdfast) -> None:
    jobs = [await child_jobs.remember.enqueue(name) for name in ("ann", "bob")]
    assert [job.result for job in await run_all(hf, *jobs, concurrency=1)] == [None, None]


async def test_a_job_enqueued_in_a_child_belongs_to_its_tenant_and_request(hf: Holdfast) -> None:
    options = child_jobs.enqueue_more.options(tenant="acme", correlation_id="request-7")
    (parent,) = await run_all(hf, await options.enqueue())
    (made,) = [job for job in (await hf.jobs.list()).jobs if job.name == "follow_up"]
    assert str(made.id) == parent.result
    assert (made.tenant, made.correlation_id) == ("acme", "request-7")
    assert made.state is State.SUCCEEDED


async def test_resources_of_a_child_are_closed_at_its_end(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING_FOLDER", str(tmp_path))
    (ended,) = await run_all(hf, await child_jobs.which.enqueue())
    assert (tmp_path / f"closed-{ended.result}").exists()


async def test_progress_of_a_child_is_recorded_while_it_runs(hf: Holdfast, tmp_path: Path) -> None:
    job = await child_jobs.gated.enqueue(str(tmp_path))
    async with working(hf):
        await progress_of(hf, job)
        assert (await hf.get(job.id)).state is State.RUNNING
        (tmp_path / "gate").touch()
        assert await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == "through"


async def test_progress_of_a_lost_lease_raises_in_a_child_and_nothing_is_written(
    hf: Holdfast, local_url: str, tmp_path: Path
) -> None:
    job = await child_jobs.report_twice.enqueue(str(tmp_path))
    async with seen_events() as seen, working(hf):
        await progress_of(hf, job)
        await execute(local_url, LOSE)
        (tmp_path / "gate").touch()
        await seen.first("lost")
    assert (tmp_path / "lost").exists()
    found = await hf.get(job.id)
    assert (found.state, found.progress, found.fence) == (State.RUNNING, 1, 2)


async def test_what_a_job_left_running_in_a_child_reports_nothing_for_the_next_job(
    hf: Holdfast, tmp_path: Path
) -> None:
    before = await child_jobs.leave_behind.enqueue(str(tmp_path), "report")
    after = await child_jobs.come_next.enqueue(str(tmp_path))
    ended = await run_all(hf, before, after, concurrency=1)
    assert [(job.state, job.progress) for job in ended] == [(State.SUCCEEDED, None)] * 2


async def test_what_a_job_left_running_in_a_child_kills_no_other_job(
    hf: Holdfast, tmp_path: Path
) -> None:
    before = await child_jobs.leave_behind.enqueue(str(tmp_path), "crash")
    after = await child_jobs.come_next.enqueue(str(tmp_path))
    _, ended = await run_all(hf, before, after, concurrency=1)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)
    assert (ended.crashes, ended.releases) == (1, 1)
    outcomes = [attempt.outcome for attempt in await hf.jobs.attempts(ended.id)]
    assert outcomes == ["crashed", "succeeded"]


async def test_a_job_that_kills_a_child_twice_is_dead_whoever_ran_there_before(
    hf: Holdfast,
) -> None:
    first = await child_jobs.which.enqueue()
    poison = await child_jobs.crash.enqueue("exited with code 3")
    _, ended = await run_all(hf, first, poison, concurrency=1)
    assert (ended.state, ended.attempts) == (State.DEAD, 1)
    assert (ended.crashes, ended.releases) == (2, 1)


async def test_progress_may_be_reported_on_a_loop_of_the_handlers_own(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.report_on_a_loop_of_its_own.enqueue())
    assert (ended.state, ended.progress) == (State.SUCCEEDED, 4)


async def test_a_canceled_job_stops_its_child(hf: Holdfast, tmp_path: Path) -> None:
    job = await child_jobs.gated.enqueue(str(tmp_path))
    async with working(hf):
        await progress_of(hf, job)
        canceled = await hf.jobs.cancel(job.id)
        await wait_until((tmp_path / "told").exists, "told to stop")
    assert await hf.get(job.id) == canceled


async def test_a_canceled_job_that_does_not_listen_is_killed(hf: Holdfast, tmp_path: Path) -> None:
    job = await child_jobs.start_others.enqueue(str(tmp_path), "hang")
    async with working(hf):
        processes = await progress_of(hf, job)
        await hf.jobs.cancel(job.id)
        await all_gone(processes)
        assert (await hf.get(job.id)).state is State.CANCELED


@pytest.mark.parametrize("fails", [False, True])
async def test_completing_says_that_it_is_not_for_children(hf: Holdfast, fails: bool) -> None:
    (ended,) = await run_all(hf, await child_jobs.complete.enqueue(fails))
    assert (ended.state, ended.error_code) == (State.DEAD, "NotInThisStore")
    assert "do not work in child processes" in (ended.error_text or "")


async def test_an_error_in_a_child_ends_its_job_as_it_would_elsewhere(hf: Holdfast) -> None:
    jobs = await hf.enqueue_many([child_jobs.fail.call(kind) for kind in child_jobs.ERRORS])
    for kind, ended in zip(child_jobs.ERRORS, await run_all(hf, *jobs), strict=True):
        state = State.FAILED if kind in ("GONE", "OWN") else State.DEAD
        assert (ended.state, ended.error_code) == (state, kind)
        assert f"{child_jobs.__file__}:" in (ended.error_text or "")
        assert "worker/children/child.py" not in (ended.error_text or "")


async def test_hostile_errors_and_results_end_no_child(hf: Holdfast) -> None:
    kinds = [*hostile.ERRORS, *hostile.RESULTS]
    jobs = await hf.enqueue_many([child_jobs.turn_on_us.call(kind) for kind in kinds])
    for kind, ended in zip(kinds, await run_all(hf, *jobs), strict=True):
        expected = State.DEAD if kind in hostile.ERRORS else State.FAILED
        assert (ended.state, ended.crashes, ended.attempts) == (expected, 0, 1), kind


async def test_a_child_can_snooze(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.snooze_once.enqueue())
    assert (ended.state, ended.result, ended.snoozes) == (State.SUCCEEDED, 1, 1)


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("nan", "UNSTORABLE_RESULT", "the result can't be stored: $.mean: NaN"),
        ("large", "UNSTORABLE_RESULT", "it is larger than 1048576 bytes"),
        ("progress", "UNSTORABLE_PROGRESS", "the progress can't be stored: $.done: an object"),
    ],
)
async def test_what_a_child_cannot_store_fails_its_job_and_says_so(
    hf: Holdfast, kind: str, code: str, reason: str
) -> None:
    (ended,) = await run_all(hf, await child_jobs.say_odd.enqueue(kind))
    assert (ended.state, ended.error_code) == (State.FAILED, code)
    assert ended.error_text is not None
    assert reason in ended.error_text


async def test_arguments_that_do_not_fit_fail_at_once(hf: Holdfast, local_url: str) -> None:
    job = await child_jobs.fail.enqueue("GONE")
    await execute(local_url, """UPDATE jobs SET arguments = '{"kind": 1}'""")
    (ended,) = await run_all(hf, job)
    assert (ended.state, ended.error_code) == (State.FAILED, "BAD_ARGUMENTS")


async def test_arguments_of_another_version_are_handed_back_without_a_child(
    hf: Holdfast, local_url: str
) -> None:
    job = await child_jobs.fail.enqueue("GONE")
    await execute(local_url, """UPDATE jobs SET arguments = '{"other": 1}'""")
    async with seen_events() as seen, working(hf):
        told = await seen.first("handed_back")
    assert told.message == "fail(kind) has no argument 'other' and needs argument 'kind'"
    waiting = await hf.get(job.id)
    assert (waiting.state, waiting.attempts) == (State.QUEUED, 0)


def test_a_child_of_another_version_can_hand_back() -> None:
    outcome = HandedBack("send(to) has no argument 'subject'")
    assert Ended.of(outcome, 0).outcome == outcome


async def test_a_child_that_dies_costs_its_own_job_an_attempt_and_says_how(hf: Holdfast) -> None:
    crashes = [child_jobs.crash.call(reason) for reason in child_jobs.CRASHES]
    others = [child_jobs.which.call(), child_jobs.neighbor.call()] * len(crashes)
    jobs = await hf.enqueue_many([*crashes, *others])
    ended = await run_all(hf, *jobs, concurrency=4)
    for reason, job in zip(child_jobs.CRASHES, ended, strict=False):
        assert (job.state, job.error_code, job.crashes) == (State.DEAD, "CRASHED", 1), reason
        assert f"the process that ran the handler {reason}" in (job.error_text or "")
        assert [attempt.outcome for attempt in await hf.jobs.attempts(job.id)] == ["crashed"]
    assert {(job.state, job.attempts) for job in ended[len(crashes) :]} == {(State.SUCCEEDED, 1)}


async def test_a_stack_overflow_in_c_kills_the_child_only(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.overflow_stack.enqueue())
    assert (ended.error_code, ended.crashes) == ("CRASHED", 1)
    assert "was killed by SIGSEGV" in (ended.error_text or "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to the limit")
async def test_a_handler_that_needs_too_much_memory_fails_and_its_child_is_replaced(
    hf: Holdfast,
) -> None:
    sizes = (10, 1000, 10)
    jobs = [await child_jobs.allocate.enqueue(megabytes) for megabytes in sizes]
    little, much, again = await run_all(hf, *jobs, concurrency=1)
    assert (much.state, much.error_code, much.crashes) == (State.DEAD, "MemoryError", 0)
    assert little.result != again.result


async def test_a_child_that_aborts_at_its_memory_limit_is_said_to_be_out_of_memory(
    hf: Holdfast,
) -> None:
    (ended,) = await run_all(hf, await child_jobs.abort.enqueue())
    assert (ended.error_code, ended.crashes) == ("OUT_OF_MEMORY", 1)
    assert "memory_bytes_max at 300,000,000 bytes" in (ended.error_text or "")


@pytest.mark.parametrize("handler", [child_jobs.hang, child_jobs.hang_in_c], ids=["python", "c"])
async def test_a_handler_that_hangs_past_its_timeout_is_killed(hf: Holdfast, handler: Any) -> None:
    job, behind = await handler.enqueue(), await child_jobs.which.enqueue()
    ended, after = await run_all(hf, job, behind, concurrency=1)
    assert (ended.state, ended.error_code, ended.crashes) == (State.DEAD, "TIMEOUT", 0)
    assert "did not stop within another 1.5 s; its process was killed" in (ended.error_text or "")
    assert after.state is State.SUCCEEDED


async def test_a_handler_that_sees_its_timeout_and_returns_has_timed_out(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.give_up.enqueue())
    assert (ended.state, ended.error_code) == (State.DEAD, "TIMEOUT")
    assert "was killed" not in (ended.error_text or "")


async def test_what_a_handler_started_ends_with_its_child(hf: Holdfast, tmp_path: Path) -> None:
    job = await child_jobs.start_others.enqueue(str(tmp_path), "crash")
    async with working(hf):
        processes = await progress_of(hf, job)
        await all_gone(processes)
        await wait_until(lambda: has_ended(hf, job), "settled")
    assert (await hf.get(job.id)).error_code == "CRASHED"


async def has_ended(hf: Holdfast, job: Job) -> bool:
    return (await hf.get(job.id)).state.ended


async def test_a_worker_that_stops_releases_the_job_of_a_child_that_does_not_listen(
    hf: Holdfast, tmp_path: Path
) -> None:
    job = await child_jobs.start_others.enqueue(str(tmp_path), "hang")
    async with working(hf):
        processes = await progress_of(hf, job)
    assert not is_alive(processes[0])
    await all_gone(processes)
    released = await hf.get(job.id)
    assert (released.state, released.attempts, released.releases) == (State.QUEUED, 0, 1)


@pytest.mark.parametrize("variable", BROKEN_STARTS)
async def test_a_child_that_can_not_start_fails_its_job_and_not_the_worker(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    jobs = [
        await child_jobs.crash.enqueue("exited with code 3"),
        await child_jobs.neighbor.enqueue(),
    ]
    failed, beside = await run_all(hf, *jobs)
    assert (failed.state, failed.error_code, failed.crashes) == (State.DEAD, "CHILD_FAILED", 0)
    assert BROKEN_STARTS[variable] in (failed.error_text or "")
    assert beside.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        (child_jobs.BROKEN_IMPORT, "the app could not be imported: RuntimeError"),
        (child_jobs.BROKEN_RESOURCE, "a resource could not be opened: RuntimeError"),
    ],
)
async def test_what_keeps_a_child_from_starting_is_logged_by_its_type_alone(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str, told: str
) -> None:
    monkeypatch.setenv(variable, "1")
    async with seen_events() as seen:
        await run_all(hf, await child_jobs.crash.enqueue("exited with code 3"))
    assert [event.message for event in seen.named("executor_failed")] == [told]


class Refusing(Seam):
    """A machine that has no room for another process."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_at: list[float] = []

    async def start_process(self, command: Sequence[str], **options: Any) -> NoReturn:
        self.asked_at.append(self.monotonic())
        raise BlockingIOError("no room for another process")


async def test_children_that_can_not_start_are_not_started_in_a_rush(local_url: str) -> None:
    seam = Refusing()
    async with borrowed(child_jobs.hf, local_url, seam):
        hf = child_jobs.hf
        jobs = await hf.enqueue_many([child_jobs.fail.call("GONE") for _ in range(6)])
        ended = await run_all(hf, *jobs, concurrency=6)
    assert {(job.state, job.error_code) for job in ended} == {(State.DEAD, "CHILD_FAILED")}
    assert "no room for another process" in (ended[0].error_text or "")
    assert len(seam.asked_at) == 6
    assert seam.asked_at[4] - seam.asked_at[3] > 0.2


async def test_a_job_that_is_not_defined_in_the_child_says_so(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.only_in_the_parent.enqueue())
    assert (ended.state, ended.error_code) == (State.DEAD, "CHILD_FAILED")
    assert "is not defined when its module is imported" in (ended.error_text or "")


async def test_an_app_that_children_can_not_import_is_refused_when_the_worker_starts(
    local_hf: Holdfast,
) -> None:
    @local_hf.job(executor="process")
    def closure() -> None: ...

    with pytest.raises(ConfigurationError, match="global of a module"):
        await local_hf.run_worker(until_empty=True)


async def test_options_that_make_no_sense_are_refused(local_hf: Holdfast) -> None:
    async def asynchronous() -> None: ...

    def plain() -> None: ...

    refused: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
        ("needs a plain function", {"executor": "process"}, asynchronous),
        ('must be "process"', {"executor": "thread"}, plain),
        ("memory_bytes_max needs", {"memory_bytes_max": 1}, plain),
    ]
    for text, options, function in refused:
        with pytest.raises(ConfigurationError, match=text):
            local_hf.job(**options)(function)


async def test_in_a_sandbox_such_handlers_run_in_threads(local_hf: Holdfast) -> None:
    @local_hf.job(executor="process")
    def closure(ctx: Context) -> int:
        return os.getpid()

    async with sandbox(local_hf) as box:
        job = await closure.enqueue()
        await box.drain()
        assert (await local_hf.get(job.id)).result == os.getpid()


def test_this_module_can_be_imported_by_children() -> None:
    assert child_jobs.__name__ == "tests.worker.child_jobs"
    assert str(ROOT) in sys.path
