"""A store of another package is found by its entry point, and needs the core only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import ConfigurationError, Holdfast, NotInThisStore, State

PACKAGE = """
from holdfast.store_api import Receipt, Seam, Settings

class TinyStore:
    def __init__(self, url: str) -> None:
        self._url = url
        self._jobs = {}

    async def open(self): ...

    async def close(self): ...

    def abandon(self): ...

    async def enqueue(self, jobs):
        self._jobs |= {job.id: job for job in jobs}
        return [Receipt(job.id, True) for job in jobs]

    async def get(self, job_id):
        job = self._jobs.get(job_id)
        return job and job.enqueued(job.id, Seam().now())


def make_store(url: str, seam: Seam, settings: Settings) -> TinyStore:
    return TinyStore(url)
"""


@pytest.fixture
def tiny_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tiny_store.py").write_text(PACKAGE)
    installed = tmp_path / "tiny_store-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-store\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[holdfast.stores]\ntiny = tiny_store:make_store\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("tiny_store", None)


@pytest.mark.usefixtures("tiny_package")
async def test_a_store_of_another_package_is_found_by_its_entry_point() -> None:
    async with Holdfast("tiny://here") as hf:

        @hf.job
        async def resize() -> None: ...

        job = await resize.enqueue()
        assert (await hf.jobs.get(job.id)).state is State.QUEUED
        with pytest.raises(NotInThisStore, match=r"this store \(TinyStore\) can't pause"):
            await hf.queues.pause("default")


async def test_a_scheme_that_nobody_registered_is_told_with_those_that_are_there() -> None:
    with pytest.raises(ConfigurationError, match=r"no store for tiny://.*sqlite://, postgresql://"):
        Holdfast("tiny://here")
