"""An SQLite file on a full disk, or without its schema: clear words, and nothing half done."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from holdfast.domain.errors import SchemaMismatch, StoreUnavailable
from holdfast.domain.job import Filter
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.harness import claim, enqueue, new_job, recorded, success
from tests.support.disks import SmallDisk, small_disk

ENQUEUES_MAX = 100
RENEWALS = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def store(disk: SmallDisk) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(disk.database, Seam())
    await store.open()
    yield store
    await store.close()


async def enqueue_until_full(store: SqliteStore) -> tuple[list[UUID], StoreUnavailable]:
    acknowledged: list[UUID] = []
    for _ in range(ENQUEUES_MAX):
        try:
            receipts = await store.enqueue([new_job() for _ in range(50)])
        except StoreUnavailable as error:
            return acknowledged, error
        acknowledged += [receipt.id for receipt in receipts]
    raise AssertionError("the disk did not become full")


async def test_a_full_disk_is_named_and_nothing_is_half_enqueued(
    disk: SmallDisk, store: SqliteStore
) -> None:
    disk.fill(spare_bytes=64 * 1024)
    acknowledged, error = await enqueue_until_full(store)
    assert f"the disk of {disk.database} is full" in str(error)
    with pytest.raises(StoreUnavailable, match="is full"):
        await store.enqueue([new_job() for _ in range(50)])
    kept = {job.id for job in (await store.page(Filter(), 10_000)).jobs}
    assert kept == set(acknowledged)
    disk.make_room()
    acknowledged.append(await enqueue(store))
    assert sum(count.jobs for count in await store.counts()) == len(acknowledged)


async def test_a_job_whose_end_found_no_room_is_ended_when_there_is_some(
    disk: SmallDisk, store: SqliteStore
) -> None:
    await store.enqueue([new_job() for _ in range(200)])
    jobs = await claim(store, 200)
    disk.fill()
    with pytest.raises(StoreUnavailable, match="is full"):
        await store.settle([success(job) for job in jobs])
    assert [count.state for count in await store.counts()] == [State.RUNNING]
    disk.make_room()
    assert await store.settle([success(job) for job in jobs]) == []
    assert [(count.state, count.jobs) for count in await store.counts()] == [(State.SUCCEEDED, 200)]
    assert (await recorded(store, jobs[0].id)).result == "done"


async def test_a_disk_that_the_log_filled_has_room_again(
    disk: SmallDisk, store: SqliteStore
) -> None:
    await store.enqueue([new_job() for _ in range(200)])
    leases = [job.lease for job in await claim(store, 200)]
    with closing(sqlite3.connect(disk.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    disk.fill(spare_bytes=256 * 1024)
    failures = 0
    for _ in range(RENEWALS):
        try:
            assert await store.renew(leases, 60) == []
        except StoreUnavailable:
            failures += 1
    assert 1 <= failures <= RENEWALS / 2


async def test_a_file_on_a_full_disk_is_opened_when_there_is_room(disk: SmallDisk) -> None:
    disk.fill()
    store = SqliteStore(disk.database, Seam())
    with pytest.raises(StoreUnavailable, match=r"jobs\.db.* full"):
        await store.open()
    disk.make_room()
    await store.open()
    await enqueue(store)
    await store.close()


@pytest.mark.parametrize(
    "loss",
    [
        "DROP VIEW lanes; DROP TABLE jobs",
        "DROP VIEW lanes; DROP INDEX jobs_due",
        "ALTER TABLE jobs RENAME COLUMN suspect TO suspicious",
    ],
)
async def test_a_file_that_lost_its_schema_is_no_passing_failure(tmp_path: Path, loss: str) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, Seam())
    await store.open()
    await enqueue(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(loss)
    with pytest.raises(SchemaMismatch, match=r"jobs\.db doesn't fit this code"):
        await claim(store)
    await store.close()
