"""Methods for code without an event loop: `hf.get_sync` and the like."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from types import SimpleNamespace

import pytest

from holdfast import (
    Context,
    Filter,
    Holdfast,
    Job,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    State,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.runtime.blocking import entered_sync
from holdfast.tenant import Tenant
from holdfast.testing import sandbox_sync
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute


class Closing:
    """An object whose sync side is closed in the end."""

    def __init__(self, url: str) -> None:
        self.hf = Holdfast(url, **QUICK)

    def close(self) -> None:
        self.hf.close_sync()


@pytest.fixture
def sync_hf(store_url: str) -> Iterator[Holdfast]:
    with closing(Closing(store_url)) as it:
        yield it.hf


@pytest.fixture
def local_sync_hf(local_url: str) -> Iterator[Holdfast]:
    with closing(Closing(local_url)) as it:
        yield it.hf


def test_plain_code_can_do_everything_that_async_code_can(sync_hf: Holdfast) -> None:
    hf = sync_hf

    @hf.job(queue="images")
    def resize(width: int) -> int:
        return width

    jobs = hf.enqueue_many_sync([resize.call(width) for width in range(3)])
    assert hf.get_sync(jobs[0].id).state is State.QUEUED
    assert [each.name for each in hf.queues.list_sync()] == ["images"]
    hf.queues.pause_sync("images", by="ann", because="a look")
    assert hf.jobs.why_sync(jobs[0].id).facts["paused_by"] == "ann"
    hf.queues.resume_sync("images")
    assert hf.cancel_sync(jobs[0].id).state is State.CANCELED
    assert [step.changed for step in hf.jobs.cancel_many_sync([jobs[1].id])] == [1]
    asyncio.run(run_due(hf))
    assert hf.result_sync(jobs[2].id) == 2
    with pytest.raises(JobFailed, match="canceled"):
        hf.result_sync(jobs[0].id)
    assert len(hf.jobs.list_sync(Filter(states=(State.CANCELED,))).jobs) == 2
    hf.dead.count_groups_sync()
    assert hf.dead.groups_sync().groups == []  # canceled jobs are no errors
    assert hf.breakers.list_sync() == []
    assert hf.workers.list_sync() == []
    assert [each.running for each in hf.overview_sync().queues] == [0]
    assert hf.now_sync() >= hf.get_sync(jobs[2].id).created_at
    with pytest.raises(JobNotFound):
        hf.get_sync(hf.new_id())


async def run_due(hf: Holdfast) -> None:
    await hf.run_due()
    await hf.close()


def test_every_operation_has_a_sync_twin(local_hf: Holdfast) -> None:
    lacking = [
        f"{type(noun).__name__}.{name}"
        for noun in (
            *(local_hf.jobs, local_hf.dead, local_hf.queues, local_hf.breakers, local_hf.workers),
            local_hf.for_tenant("t"),
        )
        for name, method in inspect.getmembers(type(noun), inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
        and not hasattr(noun, f"{name}_sync")
    ]
    assert lacking == []


def test_a_twin_says_what_it_is_the_twin_of() -> None:
    assert Holdfast.get_sync.__name__ == "get_sync"
    assert Holdfast.get_sync.__doc__ == "`get` for code without an event loop."
    assert not inspect.iscoroutinefunction(Holdfast.get_sync)
    assert list(inspect.signature(Tenant.get_sync).parameters) == ["self", "job_id"]


async def test_on_an_event_loop_it_raises_and_names_what_to_await(local_hf: Holdfast) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    job = await nothing.enqueue()
    for call, instead in (
        (lambda: local_hf.get_sync(job.id), r"get_sync blocks the event loop; use: await get\("),
        (lambda: nothing.enqueue_sync(), r"enqueue_sync blocks .* await enqueue\("),
        (lambda: local_hf.enqueue_many_sync([nothing.call()]), r"await enqueue_many\("),
        (lambda: next(local_hf.jobs.cancel_many_sync([job.id])), r"async for \.\.\. in cancel_man"),
        (lambda: local_hf.transaction_sync().__enter__(), r"async with transaction\("),
    ):
        with pytest.raises(RuntimeError, match=instead):
            call()
    assert (await local_hf.get(job.id)).state is State.QUEUED


def test_many_threads_share_it(sync_hf: Holdfast) -> None:
    @sync_hf.job
    async def nothing(number: int) -> None: ...

    def enqueue_and_get(number: int) -> Job[None]:
        job = nothing.enqueue_sync(number)
        return sync_hf.get_sync(job.id)

    with ThreadPoolExecutor(8) as threads:
        jobs = list(threads.map(enqueue_and_get, range(40)))
    assert [job.arguments["number"] for job in jobs] == list(range(40))
    assert len(sync_hf.jobs.list_sync().jobs) == 40


def test_a_forked_process_has_its_own(local_sync_hf: Holdfast) -> None:
    @local_sync_hf.job
    async def nothing() -> None: ...

    job = nothing.enqueue_sync()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, local_sync_hf.get_sync(job.id).id.bytes)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        assert answer.read() == job.id.bytes
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert local_sync_hf.get_sync(job.id).state is State.QUEUED


def test_ctrl_c_ends_the_wait_and_cancels_the_work(local_sync_hf: Holdfast) -> None:
    canceled = threading.Event()
    loops = local_sync_hf._loops

    async def wait_forever() -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        loops.run_sync(wait_forever())
    assert canceled.wait(WAIT_SECONDS_MAX)
    assert local_sync_hf.jobs.list_sync().jobs == []


def test_ctrl_c_does_not_cut_the_end_of_a_block_in_half(local_sync_hf: Holdfast) -> None:
    done: list[str] = []

    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        yield
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        await asyncio.to_thread(interrupted.wait, WAIT_SECONDS_MAX)
        done.append("left")

    interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), entered_sync(local_sync_hf._run_sync, block()):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["left"]


class Waiter:
    """A thread in a call that never ends by itself."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._waits = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._waits.wait(WAIT_SECONDS_MAX)

    def _run(self) -> None:
        try:
            self._hf._run_sync(self._wait())
        except Exception as error:
            self._error = error

    async def _wait(self) -> None:
        self._waits.set()
        await asyncio.Event().wait()

    def error(self) -> Exception | None:
        self._thread.join(WAIT_SECONDS_MAX)
        return self._error


def test_threads_that_wait_when_it_is_closed_are_told(local_sync_hf: Holdfast) -> None:
    waiters = [Waiter(local_sync_hf) for _ in range(3)]
    local_sync_hf.close_sync()
    for waiter in waiters:
        error = waiter.error()
        assert isinstance(error, StoreUnavailable)
        assert "the Holdfast object was closed" in str(error)
    assert local_sync_hf.jobs.list_sync().jobs == []


def test_threads_that_wait_at_the_end_of_a_sandbox_are_told(local_sync_hf: Holdfast) -> None:
    with sandbox_sync(local_sync_hf):
        waiter = Waiter(local_sync_hf)
    assert isinstance(waiter.error(), StoreUnavailable)


def test_threads_that_call_it_while_it_is_closed_go_on_or_are_told(
    local_sync_hf: Holdfast,
) -> None:
    def call_and_close(number: int) -> None:
        try:
            local_sync_hf._run_sync(give_way())
        except StoreUnavailable:
            return
        local_sync_hf.close_sync()

    async def give_way() -> None:
        await asyncio.to_thread(int)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(call_and_close, range(200), timeout=WAIT_SECONDS_MAX))


SUSPENDED = """
import sys
from holdfast import Holdfast

hf = Holdfast(sys.argv[1])

def rows():
    with hf.transaction_sync() as connection:
        for row in connection.fetch("SELECT 1 UNION SELECT 2"):
            yield row[0]

suspended = rows()
print(next(suspended))
"""


def test_a_process_exits_while_a_sync_transaction_is_suspended(local_url: str) -> None:
    command = [sys.executable, "-c", SUSPENDED, local_url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert "RuntimeError: Python is exiting" in ended.stderr


def test_a_timeout_of_the_work_is_an_error_as_usual(local_sync_hf: Holdfast) -> None:
    @local_sync_hf.job
    async def nothing() -> None: ...

    job = nothing.enqueue_sync()
    with pytest.raises(ResultTimeout, match="did not end within 0 s"):
        local_sync_hf.result_sync(job.id, timeout_seconds=0)


def test_an_iterator_that_is_left_early_stops_there(sync_hf: Holdfast) -> None:
    @sync_hf.job
    async def nothing() -> None: ...

    jobs = sync_hf.enqueue_many_sync([nothing.call() for _ in range(3)])
    for step in sync_hf.jobs.cancel_many_sync([job.id for job in jobs], jobs_per_second=10):
        assert step.done == 1
        break
    states = [sync_hf.get_sync(job.id).state for job in jobs]
    assert states == [State.CANCELED, State.QUEUED, State.QUEUED]


def test_a_sync_transaction_commits_rows_and_jobs_together(
    sync_hf: Holdfast, store_url: str
) -> None:
    @sync_hf.job
    async def nothing() -> None: ...

    asyncio.run(execute(store_url, "CREATE TABLE orders (number integer)"))
    table = "orders" if store_url.startswith("sqlite") else "holdfast.orders"
    with sync_hf.transaction_sync() as connection:
        connection.execute(f"INSERT INTO {table} VALUES ($1)", 7)
        job = nothing.options(connection=connection).enqueue_sync()

    def fail_in_a_transaction() -> None:
        with sync_hf.transaction_sync() as connection:
            connection.execute(f"INSERT INTO {table} VALUES ($1)", 8)
            nothing.options(connection=connection).enqueue_sync()
            raise LookupError

    with pytest.raises(LookupError):
        fail_in_a_transaction()
    assert [each.id for each in sync_hf.jobs.list_sync().jobs] == [job.id]
    with sync_hf.transaction_sync(read_only=True) as connection:
        assert [row[0] for row in connection.fetch(f"SELECT number FROM {table}")] == [7]


def test_ctrl_c_in_a_sync_transaction_rolls_back_and_leaves_the_loop_running(
    sync_hf: Holdfast, store_url: str
) -> None:
    asyncio.run(execute(store_url, "CREATE TABLE orders (number integer)"))
    table = "orders" if store_url.startswith("sqlite") else "holdfast.orders"

    def interrupt_a_transaction() -> None:
        with sync_hf.transaction_sync() as connection:
            connection.execute(f"INSERT INTO {table} VALUES (1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt_a_transaction()
    with sync_hf.transaction_sync(read_only=True) as connection:
        assert connection.fetchval(f"SELECT count(*) FROM {table}") == 0


def test_a_call_that_would_wait_for_its_own_sync_transaction_is_refused(
    local_sync_hf: Holdfast,
) -> None:
    @local_sync_hf.job
    async def nothing() -> None: ...

    with local_sync_hf.transaction_sync(), pytest.raises(StoreRefused, match="wait for itself"):
        nothing.enqueue_sync()
    assert local_sync_hf.jobs.list_sync().jobs == []


async def test_a_plain_handler_uses_it_from_its_thread(hf: Holdfast) -> None:
    found = SimpleNamespace(state=None)

    @hf.job
    def look(ctx: Context) -> None:
        found.state = hf.get_sync(ctx.job_id).state

    await look.enqueue()
    assert (await hf.run_due()).succeeded == 1
    await asyncio.to_thread(hf.close_sync)
    assert found.state is State.RUNNING
