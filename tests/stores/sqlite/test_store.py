"""What is SQLite's own: the file, group commit, locks."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.breakers import Strike
from holdfast.domain.errors import (
    ConfigurationError,
    DuplicateJob,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)
from holdfast.domain.job import Filter
from holdfast.runtime.seam import BatchThread, Seam
from holdfast.stores import migrations
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance.harness import enqueue, new_job, recorded
from tests.support.processes import WAIT_SECONDS

NEWEST = migrations.steps("sqlite")[-1].version
OPENER = """
import asyncio, sys
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.harness import new_job

async def main():
    store = SqliteStore(sys.argv[1], Seam())
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    await store.enqueue([new_job()])
    await store.close()

asyncio.run(main())
"""
ENQUEUER = """
import asyncio, sys
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.harness import new_job

async def main():
    store = SqliteStore(sys.argv[1], Seam())
    await store.open()
    while True:
        for receipt in await store.enqueue([new_job() for _ in range(3)]):
            print(receipt.id, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


class Turns(Seam):
    """A machine whose threads work when the test says so; it also notes every statement."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Turns._Thread] = []
        self.statements: list[str] = []

    class _Thread:
        def __init__(self, work: Callable[[list[Any]], None]) -> None:
            self._work = work
            self._items: list[Any] = []

        def put(self, item: Any) -> None:
            self._items.append(item)

        def close(self, *, wait: bool = True) -> None:
            self.take_turn()

        def take_turn(self) -> None:
            items, self._items = self._items, []
            if items:
                self._work(items)

    def thread(self, name: str, work: Callable[[list[Any]], None]) -> BatchThread[Any]:
        self.started.append(self._Thread(work))
        return self.started[-1]

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_trace_callback(self.statements.append)
        return connection

    async def finish(self, *tasks: asyncio.Task[Any]) -> list[Any]:
        """Let the tasks put their calls, then give every thread turns until all are answered."""
        while not all(task.done() for task in tasks):
            for _ in range(10):
                await _next_step()
            for thread in self.started:
                thread.take_turn()
        return await asyncio.gather(*tasks, return_exceptions=True)


async def _next_step() -> None:
    stepped = asyncio.Event()
    asyncio.get_running_loop().call_soon(stepped.set)
    await stepped.wait()


class Faulty(Seam):
    """A machine with a disk that fails at the statements which the test names."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = ""

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        seam = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if seam.failing and sql.startswith(seam.failing):
                    raise sqlite3.OperationalError("disk I/O error")
                if sql.startswith("PRAGMA busy_timeout"):
                    sql = "PRAGMA busy_timeout = 0"
                return super().execute(sql, *parameters)

        return sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Connection
        )


async def opened(path: str, seam: Seam | None = None) -> SqliteStore:
    store = SqliteStore(path, seam or Seam())
    await store.open()
    return store


@pytest.mark.parametrize("path", [":memory:", "", "file::memory:?cache=shared"])
def test_a_database_in_memory_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="use a file"):
        SqliteStore(path, Seam())


def test_an_unknown_durability_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="NORMAL, FULL, not 'OFF'"):
        SqliteStore(path, Seam(), synchronous="OFF")


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path / "nowhere")):
        await opened(str(tmp_path / "nowhere" / "jobs.db"))


async def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, this is not a database. " * 50)
    with pytest.raises(ConfigurationError, match=r"letter\.txt is not an SQLite database"):
        await opened(str(file))
    assert file.read_text().startswith("Dear reader")


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be opened"):
        await opened(str(tmp_path))


async def test_a_file_that_can_not_be_written_is_named(path: str) -> None:
    await (await opened(path)).close()

    class ReadOnly(Seam):
        def connect_sqlite(self, path: str) -> sqlite3.Connection:
            return sqlite3.connect(
                f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )

    with pytest.raises(StoreError, match=r"jobs\.db"):
        await (await opened(path, ReadOnly())).enqueue([new_job()])


async def test_a_new_file_is_migrated_and_told_so(path: str) -> None:
    steps = [f"{step.version:04}_{step.name}" for step in migrations.steps("sqlite")]
    assert list(await SqliteStore(path, Seam()).migrate()) == steps
    assert list(await SqliteStore(path, Seam()).migrate()) == []


async def test_acknowledged_writes_are_on_the_disk(path: str) -> None:
    seam = Turns()
    store = SqliteStore(path, seam)
    await seam.finish(asyncio.ensure_future(store.open()))
    assert "PRAGMA synchronous = FULL" in seam.statements
    assert "PRAGMA journal_mode = WAL" in seam.statements
    await seam.finish(asyncio.ensure_future(store.close()))


@pytest.mark.parametrize(("ahead", "runs"), [(0, True), (1, True), (2, False)])
async def test_a_schema_that_is_one_version_newer_runs_and_no_other(
    path: str, ahead: int, runs: bool
) -> None:
    await (await opened(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT OR REPLACE INTO schema_version VALUES (?, 'later', 0)", (NEWEST + ahead,)
        )
    connection.close()
    if runs:
        store = await opened(path)
        await enqueue(store)
        await store.close()
    else:
        with pytest.raises(SchemaMismatch, match="upgrade holdfast"):
            await opened(path)


async def test_processes_that_open_a_new_file_at_once_all_work(path: str) -> None:
    pipe = asyncio.subprocess.PIPE
    openers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPENER, path, stdin=pipe, stdout=pipe, stderr=pipe
        )
        for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert await opener.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(opener.communicate(b"go\n") for opener in openers))
    assert [
        (opener.returncode, answer[1]) for opener, answer in zip(openers, answers, strict=True)
    ] == [(0, b"")] * 4
    store = await opened(path)
    assert sum(count.jobs for count in await store.counts()) == 4
    await store.close()


async def test_an_acknowledged_enqueue_survives_kill_9(path: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENQUEUER, path, stdout=pipe
    )
    assert process.stdout is not None
    acknowledged = [(await process.stdout.readline()).decode().strip() for _ in range(100)]
    process.kill()
    acknowledged += (await process.stdout.read()).decode().split("\n")[:-1]
    await process.wait()
    store = await opened(path)
    kept = {str(job.id) for job in (await store.page(Filter(), 100_000)).jobs}
    await store.close()
    assert kept.issuperset(acknowledged)


async def test_calls_that_wait_are_committed_together_and_one_that_fails_alone_is_undone(
    path: str,
) -> None:
    seam = Turns()
    store = SqliteStore(path, seam)
    await seam.finish(asyncio.ensure_future(store.open()))
    seam.statements.clear()
    jobs = [new_job() for _ in range(10)]
    batches = [[job] for job in jobs]
    batches[4] = [*(new_job() for _ in range(150)), jobs[0]]
    answers = await seam.finish(*(asyncio.ensure_future(store.enqueue(b)) for b in batches))
    assert [isinstance(answer, DuplicateJob) for answer in answers] == [
        place == 4 for place in range(10)
    ]
    assert seam.statements.count("BEGIN IMMEDIATE") == 1
    assert seam.statements.count("COMMIT") == 1
    (counts,) = await seam.finish(asyncio.ensure_future(store.counts()))
    assert [count.jobs for count in counts] == [9]
    await seam.finish(asyncio.ensure_future(store.close()))


async def test_one_call_alone_takes_three_statements(path: str) -> None:
    seam = Turns()
    store = SqliteStore(path, seam)
    await seam.finish(asyncio.ensure_future(store.open()))
    seam.statements.clear()
    await seam.finish(asyncio.ensure_future(store.enqueue([new_job()])))
    words = [statement.split()[0] for statement in seam.statements]
    assert words == ["BEGIN", "INSERT", "COMMIT"]
    await seam.finish(asyncio.ensure_future(store.close()))


async def test_a_call_that_was_given_up_before_its_turn_does_nothing(path: str) -> None:
    seam = Turns()
    store = SqliteStore(path, seam)
    await seam.finish(asyncio.ensure_future(store.open()))
    impatient = asyncio.ensure_future(store.enqueue([new_job()]))
    for _ in range(10):
        await _next_step()
    impatient.cancel()
    for _ in range(10):
        await _next_step()
    (counts,) = await seam.finish(asyncio.ensure_future(store.counts()))
    assert counts == []
    await seam.finish(asyncio.ensure_future(store.close()))


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT", "INSERT"])
async def test_a_failing_disk_acknowledges_nothing_and_is_survived(
    path: str, statement: str
) -> None:
    seam = Faulty()
    store = await opened(path, seam)
    seam.failing = statement
    answers = await asyncio.gather(
        *(store.enqueue([new_job()]) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert path in str(answers[0])
    seam.failing = ""
    await enqueue(store)
    assert [count.jobs for count in await store.counts()] == [1]
    await store.close()


async def test_a_connection_that_can_not_roll_back_is_made_anew(path: str) -> None:
    class Worse(Faulty):
        def connect_sqlite(self, path: str) -> sqlite3.Connection:
            seam = self
            base: type[sqlite3.Connection] = type(super().connect_sqlite(path))

            class Connection(base):  # type: ignore[misc, valid-type]
                def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                    if seam.failing and sql == "ROLLBACK":
                        raise sqlite3.OperationalError("disk I/O error")
                    return super().execute(sql, *parameters)  # type: ignore[no-any-return]

            return sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, factory=Connection
            )

    seam = Worse()
    store = await opened(path, seam)
    seam.failing = "COMMIT"
    with pytest.raises(StoreUnavailable):
        await enqueue(store)
    seam.failing = ""
    await enqueue(store)
    assert [count.jobs for count in await store.counts()] == [1]
    await store.close()


async def test_a_file_that_others_keep_locked_is_unavailable_and_still_read(path: str) -> None:
    store = await opened(path, Faulty())
    job_id = await enqueue(store)
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await enqueue(store)
    assert (await recorded(store, job_id)).id == job_id
    locker.execute("ROLLBACK")
    locker.close()
    await enqueue(store)
    await store.close()


async def test_a_store_that_is_not_open_says_so(path: str) -> None:
    store = SqliteStore(path, Seam())
    with pytest.raises(StoreUnavailable, match="not open"):
        await enqueue(store)
    await store.open()
    await store.open()
    await enqueue(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.counts()


async def test_failures_that_left_the_window_are_forgotten(path: str) -> None:
    time = VirtualTime()
    store = SqliteStore(path, time)
    await store.open()
    for _ in range(7):
        assert await store.strike([Strike("gateway", 3, 10.0, 10.0, "no answer")]) == [False]
        time.advance(11)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT json_array_length(failures) FROM breakers").fetchone()
    assert kept == (1,)


class Untellable(sqlite3.OperationalError):
    def __str__(self) -> str:
        raise MemoryError


@pytest.mark.parametrize("work", ["_write", "_read"])
async def test_a_failure_that_finds_no_memory_to_be_told_stops_nobody(
    tmp_path: Path, work: str
) -> None:
    def fail(_: object) -> None:
        raise Untellable

    store = SqliteStore(str(tmp_path / "jobs.db"), Seam())
    await store.open()
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(MemoryError):
            await getattr(store, work)(fail)
        await enqueue(store)
        assert [count.jobs for count in await store.counts()] == [1]
    await store.close()
