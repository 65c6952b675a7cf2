"""The Holdfast object: enqueueing from everywhere, and looking after jobs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pydoc
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import (
    BadArguments,
    ConfigurationError,
    Context,
    DuplicateJob,
    Filter,
    Holdfast,
    HoldfastError,
    IdempotencyConflict,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    Permanent,
    ResultTimeout,
    Retry,
    State,
    StoreRefused,
    WrongState,
)
from holdfast.domain.limits import DELAY_SECONDS_MAX, ENQUEUE_BATCH_MAX, PAGE_ROWS_MAX
from holdfast.job_function import JobFunction
from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, working

Numbered = JobFunction[[int], Any]


def define_double(hf: Holdfast) -> Numbered:
    @hf.job
    async def double(number: int) -> int:
        return number * 2

    return double


async def count_jobs(hf: Holdfast) -> int:
    return sum(count.jobs for count in await hf.jobs.counts())


async def test_an_enqueued_job_is_answered_as_it_is_recorded(hf: Holdfast) -> None:
    double = define_double(hf)
    job = await double.options(
        queue="numbers",
        priority=3,
        delay_seconds=60,
        max_attempts=7,
        expires_in_seconds=3600,
        tenant="acme",
        correlation_id="request-7",
        tags=["red", "blue"],
        idempotency_key="only-once",
    ).enqueue(21)
    recorded = await hf.get(job.id)
    for field in job.__struct_fields__:
        if not field.endswith("_at"):
            assert getattr(recorded, field) == getattr(job, field), field
    assert recorded.expires_at is not None
    assert recorded.run_at - recorded.created_at == timedelta(seconds=60)
    assert recorded.expires_at - recorded.created_at == timedelta(seconds=3600)
    assert recorded.arguments == {"number": 21}


async def test_calling_a_job_function_runs_it_here_and_now(local_hf: Holdfast) -> None:
    assert await define_double(local_hf)(4) == 8
    assert await count_jobs(local_hf) == 0


async def test_enqueue_many_records_all_or_none(hf: Holdfast) -> None:
    double = define_double(hf)
    taken = await double.enqueue(0)
    calls = [double.call(1), double.options(id=taken.id).call(2), double.call(3)]
    with pytest.raises(DuplicateJob, match=str(taken.id)):
        await hf.enqueue_many(calls)
    assert await count_jobs(hf) == 1
    jobs = await hf.enqueue_many([double.call(number) for number in range(5)])
    assert [job.arguments["number"] for job in jobs] == [0, 1, 2, 3, 4]
    assert await count_jobs(hf) == 6
    assert await hf.enqueue_many([]) == []


async def test_enqueue_many_takes_a_whole_batch_and_no_more(hf: Holdfast) -> None:
    double = define_double(hf)
    calls = [double.call(number) for number in range(ENQUEUE_BATCH_MAX)]
    with pytest.raises(ConfigurationError, match=f"more than {ENQUEUE_BATCH_MAX}"):
        await hf.enqueue_many([*calls, double.call(0)])
    assert await count_jobs(hf) == 0
    await hf.enqueue_many(calls)
    assert await count_jobs(hf) == ENQUEUE_BATCH_MAX


async def test_one_key_is_one_job_within_a_batch_too(hf: Holdfast) -> None:
    double = define_double(hf)
    keyed = double.options(idempotency_key="k")
    jobs = await hf.enqueue_many([keyed.call(1), double.call(1), keyed.call(1)])
    assert jobs[0].id == jobs[2].id != jobs[1].id
    assert await count_jobs(hf) == 2
    with pytest.raises(IdempotencyConflict, match="'k'") as caught:
        await hf.enqueue_many([double.call(5), keyed.call(2)])
    assert caught.value.job_id == jobs[0].id
    assert await count_jobs(hf) == 2


async def test_a_key_belongs_to_its_tenant_and_outlives_its_job(hf: Holdfast) -> None:
    double = define_double(hf)
    keyed = double.options(idempotency_key="k")
    first = await keyed.enqueue(1)
    other = await keyed.options(tenant="acme").enqueue(2)
    assert first.id != other.id
    await hf.run_worker(until_empty=True)
    again = await keyed.enqueue(1)
    assert (again.id, again.state, again.result) == (first.id, State.SUCCEEDED, 2)


async def test_an_id_can_be_chosen_once(local_hf: Holdfast) -> None:
    double = define_double(local_hf)
    chosen = uuid4()
    assert (await double.options(id=chosen).enqueue(1)).id == chosen
    with pytest.raises(DuplicateJob, match="nothing was enqueued"):
        await double.options(id=chosen).enqueue(1)


async def test_result_waits_for_the_end_and_tells_what_went_wrong(hf: Holdfast) -> None:
    double = define_double(hf)

    @hf.job
    async def fail() -> None:
        raise Permanent("it can't be done", code="IMPOSSIBLE")

    doubled, failed = await double.enqueue(4), await fail.enqueue()
    waiting = asyncio.create_task(hf.result(doubled.id, timeout_seconds=WAIT_SECONDS_MAX))
    with pytest.raises(ResultTimeout, match=r"did not end within 0\.05 s") as timed_out:
        await hf.result(doubled.id, timeout_seconds=0.05)
    assert isinstance(timed_out.value, TimeoutError)
    async with working(hf):
        assert await waiting == 8
        with pytest.raises(JobFailed, match=r"IMPOSSIBLE: .*it can't be done") as caught:
            await hf.result(failed.id, timeout_seconds=WAIT_SECONDS_MAX)
    assert caught.value.job.state is State.FAILED
    assert caught.value.job.last_error is not None
    assert caught.value.job.last_error["code"] == "IMPOSSIBLE"
    assert await hf.result(doubled.id, timeout_seconds=0) == 8


async def test_jobs_that_do_not_exist_are_not_found(local_hf: Holdfast) -> None:
    define_double(local_hf)
    nowhere = UUID(int=7)
    for ask in (
        local_hf.get,
        local_hf.result,
        local_hf.jobs.cancel,
        local_hf.jobs.retry,
        local_hf.jobs.requeue,
        local_hf.jobs.attempts,
        local_hf.jobs.requeued_as,
    ):
        with pytest.raises(JobNotFound, match=str(nowhere)):
            await ask(nowhere)


async def test_retry_makes_a_waiting_job_due_now(hf: Holdfast) -> None:
    double = define_double(hf)
    job = await double.options(delay_seconds=3600).enqueue(1)
    assert str(await hf.run_worker(until_empty=True)) == "nothing to do"
    retried = await hf.jobs.retry(job.id)
    assert (retried.id, retried.state) == (job.id, State.QUEUED)
    assert (await hf.run_worker(until_empty=True)).succeeded == 1


async def test_an_ended_job_is_requeued_as_a_new_one_that_names_it(hf: Holdfast) -> None:
    double = define_double(hf)
    options = double.options(
        idempotency_key="k", tenant="acme", tags=["t"], priority=4, queue="q", expires_in_seconds=60
    )
    job = await options.enqueue(4)
    with pytest.raises(WrongState, match="only an ended job"):
        await hf.jobs.requeue(job.id)
    await hf.run_worker(until_empty=True)
    before = await hf.get(job.id)
    again = await hf.jobs.retry(job.id)
    assert again.id != job.id
    assert (again.requeued_from, again.idempotency_key, again.expires_at) == (job.id, None, None)
    for field in ("name", "queue", "priority", "arguments", "max_attempts", "tenant", "tags"):
        assert getattr(again, field) == getattr(before, field), field
    assert (again.attempts, again.fence, again.state) == (0, 0, State.QUEUED)
    await hf.run_worker(until_empty=True)
    assert (await hf.get(again.id)).result == 8
    assert await hf.get(job.id) == before


async def test_pages_come_newest_first_and_go_on_where_they_ended(local_hf: Holdfast) -> None:
    double = define_double(local_hf)
    jobs = await local_hf.enqueue_many(
        [double.options(tags=[f"tag{number % 2}"]).call(number) for number in range(5)]
    )
    newest_first = [job.id for job in reversed(jobs)]
    first = await local_hf.jobs.list(limit=3)
    assert [job.id for job in first.jobs] == newest_first[:3]
    rest = await local_hf.jobs.list(limit=3, after=first.after)
    assert ([job.id for job in rest.jobs], rest.after) == (newest_first[3:], None)
    tagged = await local_hf.jobs.list(Filter(tag="tag1"))
    assert [job.arguments["number"] for job in tagged.jobs] == [3, 1]
    wrong: list[Any] = [0, PAGE_ROWS_MAX + 1, 1.5, "5"]
    for limit in wrong:
        with pytest.raises(ConfigurationError, match="limit must be"):
            await local_hf.jobs.list(limit=limit)


def test_plain_code_enqueues_without_an_event_loop(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)
    double = define_double(hf)
    job = double.enqueue_sync(1)
    more = hf.enqueue_many_sync([double.call(2), double.call(3)])
    with pytest.raises(DuplicateJob):
        double.options(id=job.id).enqueue_sync(1)
    hf.close_sync()

    async def run() -> list[Any]:
        async with hf:
            await hf.run_worker(until_empty=True)
            return [await hf.result(each.id) for each in (job, *more)]

    assert asyncio.run(run()) == [2, 4, 6]


def test_many_threads_enqueue_at_once(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)
    double = define_double(hf)
    with ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(double.enqueue_sync, range(100)))
    hf.close_sync()
    assert len({job.id for job in jobs}) == 100
    assert sorted(job.arguments["number"] for job in jobs) == list(range(100))


def test_enqueue_sync_goes_on_after_it_was_closed(local_url: str) -> None:
    hf = Holdfast(local_url)
    double = define_double(hf)
    before = threading.active_count()
    for number in range(3):
        double.enqueue_sync(number)
        hf.close_sync()
    hf.close_sync()
    assert threading.active_count() == before


def test_a_forked_child_enqueues_too(local_url: str) -> None:
    script = f"""
import os
from holdfast import Holdfast
hf = Holdfast({local_url!r})

@hf.job
def double(number: int) -> int: ...

double.enqueue_sync(1)
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
double.enqueue_sync(2)
os._exit(0)
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], timeout=PROGRAM_SECONDS_MAX, check=True
    )

    async def count() -> int:
        async with Holdfast(local_url) as hf:
            return await count_jobs(hf)

    assert asyncio.run(count()) == 2


def test_a_child_forked_after_an_event_loop_was_used_enqueues_too(local_url: str) -> None:
    script = f"""
import asyncio, os
from holdfast import Holdfast
hf = Holdfast({local_url!r})

@hf.job
def double(number: int) -> int: ...

async def enqueue(number):
    await double.enqueue(number)

asyncio.run(enqueue(1))
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
asyncio.run(enqueue(2))
os._exit(0)
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], timeout=PROGRAM_SECONDS_MAX, check=True
    )


def test_one_object_serves_event_loops_one_after_the_other(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)
    double = define_double(hf)

    async def use(number: int) -> int:
        async with hf:
            await double.enqueue(number)
            await hf.run_worker(until_empty=True)
            return await count_jobs(hf)

    assert [asyncio.run(use(number)) for number in range(3)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_event_loop_that_ended_without_a_close_leaves_nothing_open(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)
    double = define_double(hf)

    async def use(number: int) -> None:
        await double.enqueue(number)

    async def use_and_close(number: int) -> int:
        async with hf:
            await use(number)
            return await count_jobs(hf)

    before = threading.active_count()
    for number in range(3):
        asyncio.run(use(number))
    assert asyncio.run(use_and_close(3)) == 4
    assert threading.active_count() <= before
    gc.collect()


def test_one_object_serves_event_loops_at_once(store_url: str) -> None:
    hf = Holdfast(store_url, **QUICK)
    double = define_double(hf)
    together = threading.Barrier(4)

    async def use(number: int) -> int:
        together.wait(WAIT_SECONDS_MAX)
        async with hf:
            job = await double.enqueue(number)
            await hf.run_worker(until_empty=True)
            value: int = await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
            return value

    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(lambda number: asyncio.run(use(number)), range(4)))
    assert values == [0, 2, 4, 6]


async def test_the_first_uses_at_once_share_one_opening(local_url: str) -> None:
    async with Holdfast(local_url, **QUICK) as hf:
        double = define_double(hf)
        await hf.close()
        before = threading.active_count()
        await asyncio.gather(*(double.enqueue(number) for number in range(10)))
        assert threading.active_count() == before + 2
        assert await count_jobs(hf) == 10


async def test_an_opening_that_failed_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    hf = Holdfast(f"sqlite:///{folder / 'jobs.db'}")
    double = define_double(hf)
    with pytest.raises(ConfigurationError, match="does not exist"):
        await double.enqueue(1)
    folder.mkdir()
    await double.enqueue(1)
    await hf.close()


def test_an_address_with_a_driver_of_sqlalchemy_is_the_address_without_it(tmp_path: Path) -> None:
    for scheme in ("postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"):
        hf = Holdfast(f"{scheme}://ada:secret@db/shop?x=a+b://")
        assert hf.url_shown == "postgresql://ada:***@db/shop?x=a+b://"
    hf = Holdfast(f"sqlite+aiosqlite:///{tmp_path}/jobs.db")
    assert hf.url_shown == f"sqlite:///{tmp_path}/jobs.db"


def test_the_scheme_of_an_address_may_be_upper_case(tmp_path: Path) -> None:
    for scheme in ("POSTGRESQL", "PostgreSQL+AsyncPG"):
        assert Holdfast(f"{scheme}://Ada@DB/Shop").url_shown == "postgresql://Ada@DB/Shop"
    for scheme in ("SQLite", "SQLITE+AIOSQLITE"):
        shown = Holdfast(f"{scheme}:///{tmp_path}/Jobs.db").url_shown
        assert shown == f"sqlite:///{tmp_path}/Jobs.db"


def test_a_job_function_looks_like_its_handler(local_hf: Holdfast) -> None:
    def resize(ctx: Context, image: str, width: int = 80) -> bool:
        """Make an image smaller."""
        return True

    function: Any = local_hf.job(queue="images")(resize)
    for each in (function, function.options(priority=3)):
        assert inspect.signature(each) == inspect.signature(resize)
        assert (each.__name__, each.__doc__) == ("resize", "Make an image smaller.")
        assert (each.__module__, each.__wrapped__) == (__name__, resize)
        assert "Make an image smaller." in pydoc.render_doc(each)
    assert (
        repr(function) == "<job resize(ctx: 'Context', image: 'str', width: 'int' = 80) -> 'bool'>"
    )


@pytest.mark.parametrize("name", ["jobs", "dead", "keys"])
def test_operations_are_like_properties_to_tools_that_ask_the_class(name: str) -> None:
    noun = getattr(Holdfast, name)
    assert noun is dict(inspect.getmembers(Holdfast))[name] is vars(Holdfast)[name]
    assert inspect.isdatadescriptor(noun)  # else, an autospec of the class has no `jobs.list`


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "sqlite://jobs.db", "sqlite:///", "mysql://h/d", "sqlite:///:memory:"]
)
def test_an_address_that_can_not_be_right_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Holdfast(url or "no address")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://u:secret@a..b/db", "a..b"),
        ("postgresql://u:secret@good,.bad:5433/db", ".bad"),
        ("postgresql://u:secret@/db?host=a..b", "a..b"),
        (f"postgresql://u:secret@{'x' * 64}.org/db", f"{'x' * 64}.org"),
    ],
    ids=["an empty label", "one of several", "in the query", "a label that is too long"],
)
def test_a_host_that_can_not_be_looked_up_is_named_at_once(url: str, host: str) -> None:
    told = f"the host {host!r} in the database URL is not a valid host name"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(told)}$"):
        Holdfast(url)


def test_the_directory_of_a_socket_is_a_host() -> None:
    folder = "x" * 70
    Holdfast(f"postgresql://u@%2F{folder}/db")
    Holdfast(f"postgresql://u@/db?host=/{folder}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 40_000}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"delay_seconds": -1}, "delay_seconds"),
        ({"delay_seconds": float("nan")}, "delay_seconds"),
        ({"delay_seconds": DELAY_SECONDS_MAX + 1}, "delay_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"expires_in_seconds": -1}, "expires_in_seconds"),
        ({"run_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"run_at": "tomorrow"}, "run_at"),
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay_seconds": 5}, "not both"),
        ({"id": "7"}, "id must be a UUID"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"tenant": "\0"}, "tenant"),
        ({"tenant": 7}, "tenant"),
        ({"correlation_id": "x" * 201}, "correlation_id"),
        ({"idempotency_key": "x" * 501}, "idempotency_key"),
        ({"tags": "red"}, "tags"),
        ({"tags": ["x"] * 33}, "tags"),
        ({"tags": [""]}, "tag"),
    ],
    ids=str,
)
def test_options_that_can_not_be_right_are_refused_at_once(
    local_url: str, options: dict[str, Any], said: str
) -> None:
    double = define_double(Holdfast(local_url))
    with pytest.raises(HoldfastError, match=said):
        double.options(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": "a"}, "no option 'queues'"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": "5"}, "timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"retry": 5}, "retry must be a Retry"),
        ({"aliases": "old"}, "aliases must be a list"),
        ({"aliases": ["double"]}, "named 'double' already"),
        ({"aliases": ["\n"]}, "job name"),
        ({"permanent": ValueError}, "permanent must be a list"),
        ({"permanent": "GONE"}, "permanent must be a list"),
        ({"transient": [5]}, "transient must be a list"),
        ({"name": "x" * 201}, "job name"),
        ({"priority": 99_999}, "priority"),
    ],
    ids=str,
)
def test_job_options_that_can_not_be_right_are_refused_at_once(
    local_url: str, options: Any, said: str
) -> None:
    hf = Holdfast(local_url)

    async def double(number: int) -> None: ...

    with pytest.raises(HoldfastError, match=said):
        hf.job(**options)(double)
    assert hf.names == []


def test_two_jobs_of_one_name_are_refused(local_url: str) -> None:
    hf = Holdfast(local_url)
    define_double(hf)
    with pytest.raises(ConfigurationError, match="named 'double' already"):
        define_double(hf)


async def test_arguments_are_checked_before_anything_is_recorded(local_url: str) -> None:
    async with Holdfast(local_url, payload_bytes_max=100) as hf:

        @hf.job
        async def resize(ctx: Context, image: str, width: int = 800) -> None: ...

        untyped: Any = resize
        for args, kwargs in [((), {}), (("a", "wide"), {}), (("a", 1, 2), {}), (("a",), {"x": 1})]:
            with pytest.raises(BadArguments, match="resize"):
                await untyped.enqueue(*args, **kwargs)
        with pytest.raises(PayloadTooLarge):
            await resize.enqueue("x" * 200)
        assert await count_jobs(hf) == 0


async def test_the_retry_policy_sets_the_attempts_and_the_settings_the_default(
    local_url: str,
) -> None:
    async with Holdfast(local_url, max_attempts=8) as hf:

        @hf.job
        async def usual() -> None: ...

        @hf.job(retry=Retry.schedule([1, 2]))
        async def scheduled() -> None: ...

        assert (await usual.enqueue()).max_attempts == 8
        assert (await scheduled.enqueue()).max_attempts == 3
        assert (await scheduled.options(max_attempts=5).enqueue()).max_attempts == 5


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_what_the_database_refuses_is_told_without_the_row(store_url: str) -> None:
    async with Holdfast(store_url) as hf:

        @hf.job
        async def pay(token: str) -> None: ...

        await execute(store_url, "ALTER TABLE jobs ADD CONSTRAINT no_pay CHECK (name <> 'pay')")
        with pytest.raises(StoreRefused, match="no_pay") as refused:
            await pay.options(priority=1).enqueue("s3cr3t")
        assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_server_that_speaks_no_tls_is_reached_by_default(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE")  # with which the tests don't ask for it
    async with Holdfast(store_url) as hf:
        assert (await hf.jobs.list()).jobs == []


async def test_an_object_can_be_used_again_after_it_was_closed(local_hf: Holdfast) -> None:
    double = define_double(local_hf)
    await double.enqueue(1)
    await local_hf.close()
    await local_hf.close()
    assert await count_jobs(local_hf) == 1


@pytest.mark.parametrize("verb", ["get", "attempts", "why", "cancel", "retry", "requeue"])
async def test_an_id_that_is_no_uuid_is_named(hf: Holdfast, verb: str) -> None:
    asks: list[Any] = [hf.get, hf.result, getattr(hf.jobs, verb)]
    for ask in asks:
        with pytest.raises(BadArguments, match="a job id is a UUID, not 'nonsense'"):
            await ask("nonsense")


async def test_a_relative_file_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    hf = Holdfast("sqlite:///jobs.db")
    assert hf.url_shown == "sqlite:///jobs.db"

    @hf.job
    async def quick() -> None: ...

    monkeypatch.chdir(elsewhere)
    async with hf:
        await quick.enqueue()
    assert (tmp_path / "jobs.db").exists()
    assert list(elsewhere.iterdir()) == []
