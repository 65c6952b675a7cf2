"""A file that is deleted, moved or replaced under a store: what was done to it is not acknowledged.

Promise 1. What the store answers is in the file that is at its path.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast import Holdfast
from holdfast.domain.errors import ConfigurationError, StoreUnavailable
from holdfast.domain.job import Filter
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.harness import enqueue, new_job

ENQUEUES_MAX = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "jobs.db"


@pytest_asyncio.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path), Seam())
    await store.open()
    yield store
    await store.close()


async def count(store: SqliteStore) -> int:
    return sum(count.jobs for count in await store.counts())


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        answer: int = connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return answer


def delete(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def exists(path: Path) -> bool:
    return path.exists()


def replace(path: Path) -> None:
    delete(path)
    path.touch()


def move(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("lose", [delete, move])
async def test_nothing_is_acknowledged_while_the_file_is_gone(
    path: Path, store: SqliteStore, lose: Callable[[Path], None]
) -> None:
    await enqueue(store)
    lose(path)
    with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
        await store.enqueue([new_job()])
    with pytest.raises(StoreUnavailable, match="put the file back, or restart"):
        await store.enqueue([new_job()])
    with pytest.raises(StoreUnavailable, match=r"was deleted, moved or replaced|put the file back"):
        await count(store)
    assert not exists(path)


async def test_a_file_that_was_put_back_is_used_again(path: Path, store: SqliteStore) -> None:
    await enqueue(store)
    away = path.parent.with_name("elsewhere")
    path.parent.rename(away)
    with pytest.raises(StoreUnavailable):
        await count(store)
    with pytest.raises(StoreUnavailable):
        await store.enqueue([new_job()])
    away.rename(path.parent)
    before = await count(store)
    await enqueue(store)
    assert await count(store) == rows(path) == before + 1


async def test_a_path_that_leads_nowhere_is_trouble_that_passes(
    path: Path, store: SqliteStore
) -> None:
    """No other error than that of a database which is away: it would end a worker."""
    await enqueue(store)
    away = path.parent.with_name("elsewhere")
    path.parent.rename(away)
    path.parent.touch()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="can't be accessed: Not a directory"):
            await store.enqueue([new_job()])
        with pytest.raises(StoreUnavailable, match="can't be accessed: Not a directory"):
            await count(store)
    path.parent.unlink()
    away.rename(path.parent)
    await enqueue(store)
    assert await count(store) == rows(path)


async def test_a_new_file_in_its_place_is_used_and_gets_the_schema(
    path: Path, store: SqliteStore
) -> None:
    await enqueue(store)
    assert await count(store) == 1
    replace(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.enqueue([new_job()])
    await enqueue(store)
    assert rows(path) == 1
    with pytest.raises(StoreUnavailable, match="replaced"):
        await count(store)
    assert await count(store) == 1


async def test_a_file_is_not_opened_with_the_log_of_another(
    path: Path, store: SqliteStore, tmp_path: Path
) -> None:
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    for _ in range(3):
        await enqueue(store)
    backup.replace(path)
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.enqueue([new_job()])
    with pytest.raises(
        StoreUnavailable, match="the old file's log, which would corrupt the new one"
    ):
        await store.enqueue([new_job()])
    for end in ("-wal", "-shm"):
        os.unlink(f"{path}{end}")
    await enqueue(store)
    assert rows(path) == 1


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_what_was_committed_outlives_a_lost_log(
    path: Path, store: SqliteStore, tmp_path: Path, end: str
) -> None:
    acknowledged = 0

    async def enqueue_many() -> None:
        nonlocal acknowledged
        for _ in range(ENQUEUES_MAX):
            await enqueue(store)
            acknowledged += 1

    await enqueue(store)
    os.unlink(f"{path}{end}")
    with pytest.raises(ConfigurationError, match=f"{end} was deleted .* is saved; restart"):
        await enqueue_many()
    with pytest.raises(ConfigurationError, match="restart all processes"):
        await store.enqueue([new_job()])
    alone = tmp_path / "alone.db"
    shutil.copyfile(path, alone)
    assert rows(alone) == 1 + acknowledged + 1


async def test_a_transaction_on_a_replaced_file_is_told(path: Path) -> None:
    hf = Holdfast(f"sqlite:///{path}")
    work = hf.job(name="work")(lambda: None)

    async def enqueue_while_it_is_deleted() -> None:
        async with hf.transaction() as connection:
            await work.options(connection=connection).enqueue()
            delete(path)

    async with hf:
        await work.enqueue()
        with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
            await enqueue_while_it_is_deleted()


async def test_a_read_of_a_replaced_file_is_told(path: Path, store: SqliteStore) -> None:
    await enqueue(store)
    assert len((await store.page(Filter(), 10)).jobs) == 1
    delete(path)
    with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
        await store.page(Filter(), 10)


async def test_a_read_of_a_new_file_finds_the_schema_before_anybody_has_written(
    path: Path, store: SqliteStore
) -> None:
    await enqueue(store)
    assert len((await store.page(Filter(), 10)).jobs) == 1
    replace(path)
    with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
        await store.page(Filter(), 10)
    assert (await store.page(Filter(), 10)).jobs == []
