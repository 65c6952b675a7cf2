"""What a job costs on SQLite, in counts that do not depend on how fast the machine is.

Each limit names what was seen when it was set, as in `tests/stores/test_costs.py`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.harness import claim, new_job, success
from tests.support.seams import NotingSeam

JOBS = 1000
TASKS = 64
OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def log_pages(path: str) -> int:
    """The pages in the log. All are checkpointed, so the next commit writes the first one again."""
    with closing(sqlite3.connect(path)) as connection:
        busy, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert (busy, moved) == (0, pages)
        return int(pages)


def log_bytes(path: str) -> int:
    return Path(f"{path}-wal").stat().st_size


def verbs(seam: NotingSeam) -> Counter[str]:
    """How often each kind of statement ran, by its first two words. One whose trigger is called
    for each row is noted each time."""
    return Counter(" ".join(each.split()[:2]) for each in seam.statements)


async def nothing(number: int) -> None:
    return None


async def test_a_job_is_enqueued_by_one_statement_that_touches_three_pages(path: str) -> None:
    seam = NotingSeam()
    async with Holdfast(f"sqlite:///{path}", seam=seam) as hf:
        job = hf.job(nothing)
        await job.enqueue(0)  # this one connects
        log_pages(path)
        seam.statements.clear()
        for number in range(100):
            await job.enqueue(number)
        assert verbs(seam) == {"BEGIN IMMEDIATE": 100, "INSERT INTO": 100, "COMMIT": 100}
        # Seen: 307, for the row, its id and its place in the queue. One more index would be 100.
        assert log_pages(path) <= 330


async def test_a_new_log_grows_only_until_its_first_thousand_pages(path: str) -> None:
    """A commit that makes the log longer takes half as long again as one that writes over it."""
    store = SqliteStore(path, Seam())
    await store.open()
    await store.enqueue([new_job()])
    for _ in range(20):
        await store.enqueue([new_job() for _ in range(JOBS)])
    pages = log_bytes(path) / 4120
    await store.close()
    assert pages <= 1200


async def test_enqueues_at_the_same_time_share_their_commits(path: str) -> None:
    seam = NotingSeam()
    async with Holdfast(f"sqlite:///{path}", seam=seam) as hf:
        job = hf.job(nothing)
        await job.enqueue(0)
        seam.statements.clear()

        async def one_by_one() -> None:
            for number in range(10):
                await job.enqueue(number)

        await asyncio.gather(*(one_by_one() for _ in range(TASKS)))
    # Seen: 10, as all tasks are answered at once. Each time, the writer may begin before the last.
    assert verbs(seam)["COMMIT"] <= 30
    assert verbs(seam)["INSERT INTO"] == 10 * TASKS


async def test_a_batch_is_claimed_and_settled_within_limits(path: str) -> None:
    seam = NotingSeam()
    store = SqliteStore(path, seam)
    await store.open()
    await store.enqueue([new_job() for _ in range(JOBS)])
    log_pages(path)
    seam.statements.clear()
    jobs = await claim(store, JOBS)
    assert verbs(seam) == {
        "BEGIN IMMEDIATE": 1, "SELECT name,": 1, "SELECT queue,": 1,
        "SELECT json_group_array(json_array(number,": 1, "UPDATE jobs": 1 + JOBS, "COMMIT": 1,
    }  # fmt: skip
    claim_pages = log_pages(path)
    seam.statements.clear()
    assert await store.settle([success(job) for job in jobs]) == []
    assert verbs(seam) == {
        "BEGIN IMMEDIATE": 1, "SELECT json_group_array(json_array(jobs.rowid,": 1,
        "INSERT INTO": 2, "DELETE FROM": 1, "COMMIT": 1,
    }  # fmt: skip
    settle_pages = log_pages(path)
    await store.close()
    # It was 52 and 117 when these limits were set.
    assert claim_pages <= 58
    assert settle_pages <= 128


def opened(file: Path) -> str:
    with suppress(FileNotFoundError):  # that of the listing itself
        return os.readlink(file)
    return ""


class FileSeam(Seam):
    """Notes the temporary files that SQLite has open at each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_trace_callback(self._look)
        return connection

    def _look(self, statement: str) -> None:
        if statement == "COMMIT":
            self.files |= {name for name in map(opened, OPEN_FILES.iterdir()) if "etilqs" in name}


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="lists open files as Linux does")
async def test_no_batch_is_noted_in_a_temporary_file(path: str) -> None:
    seam = FileSeam()
    store = SqliteStore(path, seam)
    await store.open()
    await store.enqueue([new_job() for _ in range(JOBS)])
    jobs = await claim(store, JOBS)
    await store.settle([success(job) for job in jobs])
    await store.close()
    assert seam.files == set()
